//! Names of images as manifests write them: `registry.example:5000/path/name:tag@sha256:...`.
//!
//! Upstream: github.com/distribution/reference, by way of k8s.io/kubernetes/pkg/util/parsers.

use alloc::format;
use alloc::string::{String, ToString};

const NAME_LENGTH_MAX: usize = 255;
const TAG_LENGTH_MAX: usize = 128;

/// The parts of an image name, as written. `name` has the registry in it, if one was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImageReference<'a> {
    pub name: &'a str,
    pub tag: Option<&'a str>,
    pub digest: Option<&'a str>,
}

impl<'a> ImageReference<'a> {
    /// `None` when a runtime would refuse the name (container reason InvalidImageName).
    pub fn parse(text: &'a str) -> Option<ImageReference<'a>> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        let last = rest.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match rest[last..].split_once(':') {
            Some((end, tag)) => (&rest[..last + end.len()], Some(tag)),
            None => (rest, None),
        };
        let valid = is_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
        valid.then_some(ImageReference { name, tag, digest })
    }

    /// The tag that is meant: `latest` when there is neither tag nor digest.
    pub fn effective_tag(&self) -> Option<&'a str> {
        self.tag.or(if self.digest.is_none() { Some("latest") } else { None })
    }

    /// The name to hand to the runtime: with `:latest` when there is neither tag nor digest.
    pub fn with_default_tag(&self) -> String {
        let tag = self.effective_tag().map_or(String::new(), |tag| format!(":{tag}"));
        let digest = self.digest.map_or(String::new(), |digest| format!("@{digest}"));
        [self.name, &tag, &digest].concat().to_string()
    }

    /// The registry that is asked; names without one are those of Docker Hub.
    pub fn registry(&self) -> &'a str {
        split_registry(self.name).0.unwrap_or("docker.io")
    }
}

/// The first part is a registry if it looks like a host: a dot, a port, an upper-case letter, or
/// `localhost`.
fn split_registry(name: &str) -> (Option<&str>, &str) {
    match name.split_once('/') {
        Some((host, path))
            if host == "localhost"
                || host.contains(|c: char| matches!(c, '.' | ':') || c.is_ascii_uppercase()) =>
        {
            (Some(host), path)
        }
        _ => (None, name),
    }
}

fn is_name(name: &str) -> bool {
    let (registry, path) = split_registry(name);
    let is_image_id = name.len() == 64 && name.bytes().all(is_lower_hex);
    name.len() <= NAME_LENGTH_MAX
        && !is_image_id
        && registry.is_none_or(is_registry)
        && path.split('/').all(is_path_component)
}

fn is_registry(registry: &str) -> bool {
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (registry, None),
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_label = |label: &str| {
        label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let host_is_valid = match address {
        Some(address) => {
            !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':')
        }
        None => host.split('.').all(is_label),
    };
    let is_number = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    host_is_valid && port.is_none_or(is_number)
}

/// Lower-case letters and digits, with a dot, one or two underscores, or dashes between them.
fn is_path_component(component: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    let ends_well =
        bytes.first().copied().is_some_and(is_word) && bytes.last().copied().is_some_and(is_word);
    ends_well
        && component.split(|c: char| is_word(u8::try_from(c).unwrap_or(0))).all(|between| {
            matches!(between, "" | "." | "_" | "__") || between.bytes().all(|b| b == b'-')
        })
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=TAG_LENGTH_MAX).contains(&tag.len())
        && is_word(tag.as_bytes()[0])
        && tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else {
        return false;
    };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length && hex.bytes().all(is_lower_hex)
}

fn is_lower_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn taken_apart() {
        fn check(text: &str, registry: &str, name: &str, runtime: &str) {
            let image = ImageReference::parse(text).expect(text);
            assert_eq!((image.registry(), image.name), (registry, name));
            assert_eq!(image.with_default_tag(), runtime);
        }
        check("busybox", "docker.io", "busybox", "busybox:latest");
        check("a/b/c:1.2_3-x", "docker.io", "a/b/c", "a/b/c:1.2_3-x");
        check("r.io/a", "r.io", "r.io/a", "r.io/a:latest");
        check("r:5000/a", "r:5000", "r:5000/a", "r:5000/a:latest");
        check("localhost/a:b", "localhost", "localhost/a", "localhost/a:b");
        check("Registry/a", "Registry", "Registry/a", "Registry/a:latest");
        check("[fe80::1]:5000/a:b", "[fe80::1]:5000", "[fe80::1]:5000/a", "[fe80::1]:5000/a:b");
        let pinned = format!("a@{DIGEST}");
        check(&pinned, "docker.io", "a", &pinned);
        let both = format!("r.io/a:b@{DIGEST}");
        check(&both, "r.io", "r.io/a", &both);
    }

    #[test]
    fn names_that_runtimes_take() {
        fn check(text: &str, want: bool) {
            assert_eq!(ImageReference::parse(text).is_some(), want, "{text}");
        }
        check("a__b/c-----d.e", true);
        check("0", true);
        for text in ["", "A", "a:", "a:b:c", "a/", "/a", "a//b", "a..b", "a___b", "-a", "a-", "a b"]
        {
            check(text, false);
        }
        for text in ["a@sha256:12", "a@md5:00", "a@", "r.io:x/a", "-r.io/a", "a:-b", "a._b", "ä"] {
            check(text, false);
        }
        check(DIGEST.split_once(':').expect("a colon").1, false);
        check(&"a".repeat(255), true);
        check(&"a".repeat(256), false);
        check(&format!("a:{}", "b".repeat(128)), true);
        check(&format!("a:{}", "b".repeat(129)), false);
    }
}
