//! Names and values of labels and taints.

/// Letters, digits and `-_.`, with a letter or digit at both ends; 1 to 63 bytes.
fn word(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let end = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63 && end(bytes.first()) && end(bytes.last()) && bytes.iter().all(|b| inner(*b))
}

/// `name` or `dns.sub.domain/name`, the key of a label or taint.
pub fn qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        None => word(text),
        Some((prefix, name)) => word(name) && dns_subdomain(prefix),
    }
}

/// Empty, or as the name of a label.
pub fn label_value(text: &str) -> bool {
    text.is_empty() || word(text)
}

/// RFC 1123, in lower case; at most 253 bytes.
fn dns_subdomain(text: &str) -> bool {
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let end = |b: Option<&u8>| b.is_some_and(|b| *b != b'-');
        end(bytes.first()) && end(bytes.last()) && bytes.iter().all(|b| inner(*b))
    };
    text.len() <= 253 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values() {
        for good in ["a", "A-b_c.d", "example.com/a", "x.y-z.io/A1", &"a".repeat(63)] {
            assert!(qualified_name(good), "{good}");
        }
        for bad in
            ["", "-a", "a-", "a b", "/a", "a/", "a/b/c", "Ex.com/a", "a..b/c", &"a".repeat(64)]
        {
            assert!(!qualified_name(bad), "{bad}");
        }
        assert!(label_value("") && label_value("a.b") && !label_value("a/b") && !label_value("_a"));
    }
}
