//! What names may look like. A rule answers with what would be right, or `None` if the name is.
//!
//! Upstream: k8s.io/apimachinery/pkg/util/validation.

/// A check of a name: `None` if it is well formed.
pub type Rule = fn(&str) -> Option<&'static str>;

const LABEL_LENGTH_MAX: usize = 63;
const SUBDOMAIN_LENGTH_MAX: usize = 253;
const PORT_NAME_LENGTH_MAX: usize = 15;
const CONFIG_KEY_LENGTH_MAX: usize = 253;

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Whether the text is not empty, begins and ends with `is_word`, and has `is_word` or `between` in
/// between.
fn is_worded(text: &str, is_word: fn(u8) -> bool, between: &[u8]) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.into_iter().all(|end| end.is_some_and(|byte| is_word(*byte)))
        && bytes.iter().all(|byte| is_word(*byte) || between.contains(byte))
}

/// A label of a domain name: RFC 1123, lower case.
pub fn dns_label(name: &str) -> Option<&'static str> {
    if name.len() > LABEL_LENGTH_MAX {
        return Some("must be no more than 63 characters");
    }
    let valid = is_worded(name, is_lower_alphanumeric, b"-");
    (!valid).then_some("must be lower-case letters, digits and '-', with no '-' at either end")
}

/// A domain name: RFC 1123, lower case.
pub fn dns_subdomain(name: &str) -> Option<&'static str> {
    if name.len() > SUBDOMAIN_LENGTH_MAX {
        return Some("must be no more than 253 characters");
    }
    let is_label = |label| is_worded(label, is_lower_alphanumeric, b"-");
    (!name.split('.').all(is_label)).then_some(
        "must be lower-case letters, digits, '-' and '.', with a letter or digit at either end of \
         each part",
    )
}

/// The first part of a generated name: a domain name to which something is still added.
pub fn generate_name(prefix: &str) -> Option<&'static str> {
    match prefix.strip_suffix('-') {
        Some("") | None => dns_subdomain(prefix),
        Some(rest) => dns_subdomain(rest),
    }
}

/// A search path of a resolver: a domain name in which underscores and a last dot are allowed; or
/// just a dot.
pub fn dns_search(path: &str) -> Option<&'static str> {
    if path == "." {
        return None;
    }
    let name = path.strip_suffix('.').unwrap_or(path);
    if name.len() > SUBDOMAIN_LENGTH_MAX {
        return Some("must be no more than 253 characters");
    }
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        is_worded(label, is_lower_alphanumeric, b"-_")
    };
    (!name.split('.').all(is_label)).then_some(
        "must be lower-case letters, digits, '_', '-' and '.', with a letter or digit at either \
         end of each part",
    )
}

/// The key of a label: a name, which a domain name and a slash may precede.
pub fn qualified_name(key: &str) -> Option<&'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if prefix == Some("") {
        return Some("the part before '/' must not be empty");
    }
    if let Some(message) = prefix.and_then(dns_subdomain) {
        return Some(message);
    }
    if name.len() > LABEL_LENGTH_MAX {
        return Some("the name must be no more than 63 bytes");
    }
    let valid = is_worded(name, |byte| byte.is_ascii_alphanumeric(), b"-_.");
    (!valid).then_some(
        "must be letters, digits, '-', '_' and '.', with a letter or digit at either end, after \
         an optional domain name and '/'",
    )
}

/// The key of an annotation: as of a label, but the case of the domain name does not matter.
pub fn annotation_key(key: &str) -> Option<&'static str> {
    qualified_name(&key.to_ascii_lowercase())
}

/// The value of a label.
pub fn label_value(value: &str) -> Option<&'static str> {
    if value.len() > LABEL_LENGTH_MAX {
        return Some("must be no more than 63 bytes");
    }
    let valid = value.is_empty() || is_worded(value, |b| b.is_ascii_alphanumeric(), b"-_.");
    (!valid).then_some(
        "must be empty, or letters, digits, '-', '_' and '.', with a letter or digit at either end",
    )
}

/// The name of a port: an IANA service name.
pub fn port_name(name: &str) -> Option<&'static str> {
    if name.len() > PORT_NAME_LENGTH_MAX {
        return Some("must be no more than 15 characters");
    }
    let valid = is_worded(name, is_lower_alphanumeric, b"-")
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
        && !name.contains("--");
    (!valid).then_some(
        "must be lower-case letters, digits and single '-', with at least one letter and no '-' \
         at either end",
    )
}

/// The name of an environment variable: any printable ASCII but `=`.
pub fn env_name(name: &str) -> Option<&'static str> {
    let valid = name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=');
    (!valid).then_some("must be printable ASCII without '='")
}

/// A key of a ConfigMap or Secret: also the name of a file.
pub fn config_key(key: &str) -> Option<&'static str> {
    if key.len() > CONFIG_KEY_LENGTH_MAX {
        return Some("must be no more than 253 characters");
    }
    if key == "." || key.starts_with("..") {
        return Some("must not be '.' and must not start with '..'");
    }
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let valid = !key.is_empty() && key.bytes().all(is_word);
    (!valid).then_some("must be letters, digits, '-', '_' and '.'")
}

/// The name of an HTTP header.
pub fn http_header(name: &str) -> Option<&'static str> {
    let valid = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    (!valid).then_some("must be letters, digits and '-'")
}

/// The name of a kernel parameter, with dots or slashes between its parts.
pub fn sysctl(name: &str) -> Option<&'static str> {
    let is_part = |part| is_worded(part, is_lower_alphanumeric, b"-_");
    let valid = name.len() <= SUBDOMAIN_LENGTH_MAX && name.split(['.', '/']).all(is_part);
    (!valid).then_some(
        "must be at most 253 characters: parts of lower-case letters, digits, '-' and '_', with \
         '.' or '/' between them",
    )
}

/// A path below some directory.
pub fn local_path(path: &str) -> Option<&'static str> {
    if path.starts_with('/') {
        return Some("must be a relative path");
    }
    no_backsteps(path)
}

/// A path below a directory that a volume writes: names that start with two dots are its own.
pub fn local_file(path: &str) -> Option<&'static str> {
    local_path(path).or(path.starts_with("..").then_some("must not start with '..'"))
}

/// A path that never goes up.
pub fn no_backsteps(path: &str) -> Option<&'static str> {
    path.split('/').any(|part| part == "..").then_some("must not contain '..'")
}

/// An IPv4 or IPv6 address.
pub fn ip_address(text: &str) -> Option<&'static str> {
    let address = text.parse::<core::net::IpAddr>();
    address.is_err().then_some("must be an IP address, such as 10.9.8.7 or 2001:db8::ffff")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: Rule, right: &[&str], wrong: &[&str]) {
        for name in right {
            assert_eq!(rule(name), None, "{name}");
        }
        for name in wrong {
            assert!(rule(name).is_some(), "{name}");
        }
    }

    #[test]
    fn domain_names() {
        let (l63, l64) = ("a".repeat(63), "a".repeat(64));
        let wrong = ["", "A", "a.b", "-a", "a-", "a_b", "ä", &l64];
        check(dns_label, &["a", "0", "a-b", &l63], &wrong);
        let (l253, l254) = ("a".repeat(253), "a".repeat(254));
        check(
            dns_subdomain,
            &["a", "a.b-c", "0.1", &l253],
            &["", "A", "a..b", ".a", "a.", "-a.b", "a.b-", "a_b", &l254],
        );
        check(dns_search, &["a", "a_b.c", "_a.b", ".", "a."], &["", "-x", "a..b", "A", "..", "_"]);
        check(generate_name, &["a", "a-", "a.b-"], &["", "-", "A-", "a."]);
    }

    #[test]
    fn labels() {
        let (l63, l64) = ("a".repeat(63), "a".repeat(64));
        let (prefixed, long) = (["x/", &l63].concat(), ["x/", &l64].concat());
        check(
            qualified_name,
            &["a", "A_b.c-d", "x.y/Z", &l63, &prefixed],
            &["", "/a", "a/", "a/b/c", "A.b/c", "-a", "a b", "_", &l64, &long],
        );
        check(annotation_key, &["A.B/c"], &["A B/c"]);
        check(label_value, &["", "A_b.c-d", &l63], &["-", "a b", "a/b", &l64]);
    }

    #[test]
    fn the_rest() {
        check(
            port_name,
            &["a", "h2-c", "a1"],
            &["", "80", "A", "-a", "a-", "a--b", "a234567890123456"],
        );
        check(env_name, &["", "a", "1 b.c"], &["a=b", "a\n", "ä"]);
        check(config_key, &["a", "A_b.c-", ".x", "-"], &["", ".", "..", "..a", "a/b", "a b"]);
        check(http_header, &["X-Y-1"], &["", "a b", "a:", "a_b"]);
        check(
            sysctl,
            &["kernel.sem", "net/ipv4.x", "a-_b"],
            &["", "A", ".a", "a..b", "a.-", "a b"],
        );
        check(local_path, &["", "a", "a..b/c", "..a"], &["/a", "..", "a/../b", "../a"]);
        check(local_file, &["a", "a/..b"], &["..a", "..", "/a"]);
        check(ip_address, &["1.2.3.4", "::1"], &["", "x", "01.2.3.4", "1.2.3", "1.2.3.4/8"]);
    }
}
