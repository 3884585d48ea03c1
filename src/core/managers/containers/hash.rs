//! The hash that tells whether a running container still is what its pod asks for.
//!
//! Upstream: pkg/kubelet/container HashContainer, v1.36. The recipe must match to
//! the bit: a node that changes from the reference kubelet to this one, or back, would restart
//! every container otherwise. It covers the name and the image only.

use alloc::format;
use alloc::string::String;
use steplet_api::container::Container;

/// FNV-1a over Go's dump of the bytes of `{"image":IMAGE,"name":NAME}`.
pub fn container_hash(container: &Container) -> u32 {
    let json = format!(
        r#"{{"image":{},"name":{}}}"#,
        go_json_string(&container.image),
        go_json_string(&container.name)
    );
    let mut hash = Fnv32::new();
    hash.write(b"([]uint8)[");
    for (index, byte) in json.bytes().enumerate() {
        if index > 0 {
            hash.write(b" ");
        }
        hash.write(format!("{byte}").as_bytes());
    }
    hash.write(b"]");
    hash.0
}

/// The hash as the annotation of a container holds it: lower hex, without padding.
pub fn hash_text(container: &Container) -> String {
    format!("{:x}", container_hash(container))
}

/// JSON as Go's encoder writes it: signs that mean something in HTML are escaped. They stand in
/// strings only, so the finished text can be changed as a whole.
pub fn go_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for sign in json.chars() {
        match sign {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", sign as u32));
            }
            _ => out.push(sign),
        }
    }
    out
}

fn go_json_string(text: &str) -> String {
    go_json(&serde_json::to_string(text).expect("a string is JSON"))
}

/// FNV-1a, 32 bits.
struct Fnv32(u32);

impl Fnv32 {
    fn new() -> Fnv32 {
        Fnv32(0x811c_9dc5)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_the_reference_kubelet() {
        fn check(name: &str, image: &str, want: &str) {
            let container =
                Container { name: name.into(), image: image.into(), ..Container::default() };
            assert_eq!(hash_text(&container), want, "{name} {image}");
        }
        check("test_container", "foo/image:v1", "8e45cbd0");
        check("c", "busybox:1", "1aaabc84");
        check("i", "busybox:1", "86aaf8b6");
        check("s", "busybox:1", "c37e8463");
        check("d", "twin/uid1000:1", "7001951a");
    }

    #[test]
    fn json_as_go_writes_it() {
        assert_eq!(go_json(r#"["a > b && c"]"#), r#"["a \u003e b \u0026\u0026 c"]"#);
        assert_eq!(go_json("\"\u{2028}é\""), "\"\\u2028é\"");
    }
}
