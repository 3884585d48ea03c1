//! The subject of an X.509 certificate: who a client says it is, by the names that Kubernetes uses.
//!
//! Reads only what lies before the subject (RFC 5280, section 4.1) and trusts nothing: the
//! signature is somebody else's business.

/// User name and groups in the words of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// CN; of several the last, as in Go. Empty if there is none.
    pub common_name: String,
    /// O, in their order.
    pub organizations: Vec<String>,
}

pub(super) const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
pub(super) const OBJECT_ID: u8 = 0x06;
/// The explicit tag of the version, absent in version 1.
pub(super) const VERSION: u8 = 0xa0;

/// 2.5.4.3 and 2.5.4.10.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ORGANIZATION: &[u8] = &[0x55, 4, 10];

/// The subject of a certificate in DER, `None` if it is not one.
pub(crate) fn subject(certificate: &[u8]) -> Option<Subject> {
    let mut outer = Der(Der(certificate).take(SEQUENCE)?);
    let mut fields = Der(outer.take(SEQUENCE)?);
    if fields.0.first() == Some(&VERSION) {
        fields.any()?;
    }
    // Serial number, signature algorithm, issuer, validity.
    for _ in 0..4 {
        fields.any()?;
    }
    let mut names = Der(fields.take(SEQUENCE)?);
    let mut subject = Subject::default();
    while !names.0.is_empty() {
        let mut set = Der(names.take(SET)?);
        while !set.0.is_empty() {
            let mut pair = Der(set.take(SEQUENCE)?);
            let id = pair.take(OBJECT_ID)?;
            let (tag, value) = pair.any()?;
            if id == COMMON_NAME {
                subject.common_name = text(tag, value)?;
            } else if id == ORGANIZATION {
                subject.organizations.push(text(tag, value)?);
            }
        }
    }
    Some(subject)
}

fn text(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        // UTF8String, NumericString, PrintableString, TeletexString (in practice ASCII), IA5String.
        0x0c | 0x12 | 0x13 | 0x14 | 0x16 => String::from_utf8(value.to_vec()).ok(),
        // BMPString: UTF-16, high byte first.
        0x1e if value.len().is_multiple_of(2) => {
            let units = value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            String::from_utf16(&units.collect::<Vec<_>>()).ok()
        }
        _ => None,
    }
}

/// A run of DER elements.
pub(super) struct Der<'a>(pub(super) &'a [u8]);

impl<'a> Der<'a> {
    /// The content of the next element, which must have this tag.
    pub(super) fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, value) = self.any()?;
        (found == tag).then_some(value)
    }

    pub(super) fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // One to three bytes of length: a certificate is far below 16 MiB.
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |n, b| n << 8 | usize::from(*b)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let length = content.len();
        let mut element = vec![tag];
        match length {
            0..0x80 => element.push(length as u8),
            _ => element.extend([0x82, (length >> 8) as u8, length as u8]),
        }
        element.extend(content);
        element
    }

    fn name(id: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        der(SET, &[&der(SEQUENCE, &[&der(OBJECT_ID, &[id]), &der(tag, &[value])])])
    }

    fn certificate(names: &[Vec<u8>]) -> Vec<u8> {
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let version = der(VERSION, &[&der(2, &[&[2]])]);
        let empty = der(SEQUENCE, &[]);
        let fields =
            [&version, &der(2, &[&[7]]), &empty, &empty, &empty, &der(SEQUENCE, &names)[..]];
        der(SEQUENCE, &[&der(SEQUENCE, &fields), &empty])
    }

    #[test]
    fn names_are_read() {
        let check = |names: &[Vec<u8>], want: Option<(&str, &[&str])>| {
            let seen = subject(&certificate(names));
            let want = want.map(|(name, organizations)| Subject {
                common_name: name.into(),
                organizations: organizations.iter().map(|o| o.to_string()).collect(),
            });
            assert_eq!(seen, want);
        };
        let (cn, o) = (COMMON_NAME, ORGANIZATION);
        check(&[], Some(("", &[])));
        check(
            &[name(o, 0x13, b"system:nodes"), name(cn, 0x0c, b"me")],
            Some(("me", &["system:nodes"])),
        );
        check(
            &[name(o, 12, b"a"), name(o, 12, b"b"), name(&[0x55, 4, 6], 0x13, b"DE")],
            Some(("", &["a", "b"])),
        );
        check(&[name(cn, 12, b"a"), name(cn, 12, b"b")], Some(("b", &[])));
        check(&[name(cn, 0x1e, &[0, b'a', 0x26, 3])], Some(("a\u{2603}", &[])));
        check(&[name(cn, 0x0c, &[b'x'; 300])], Some((&"x".repeat(300), &[])));
        check(&[name(cn, 0x0c, &[0xff])], None);
        check(&[name(cn, 0x1e, &[0])], None);
        check(&[name(cn, 0x02, &[1])], None);
    }

    #[test]
    fn cut_certificates_are_none() {
        let whole = certificate(&[name(COMMON_NAME, 0x0c, b"me")]);
        for cut in 0..whole.len() {
            assert_eq!(subject(&whole[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn no_byte_makes_it_panic_or_invent() {
        let whole = certificate(&[name(ORGANIZATION, 0x0c, b"us"), name(COMMON_NAME, 0x0c, b"me")]);
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut changed = whole.clone();
                changed[at] = byte;
                let subject = subject(&changed).unwrap_or_default();
                // Two bytes can be one character of UTF-16, three bytes of UTF-8.
                assert!(subject.common_name.len() <= 3 && subject.organizations.len() <= 2);
            }
        }
    }
}
