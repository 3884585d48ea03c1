//! Percent-encoding, as in the targets of requests (RFC 3986, section 2.1) and in `grpc-message`.

/// The bytes that `text` stands for, and whether it is well-formed: a `%` that is not followed by
/// two hexadecimal digits stands for itself.
pub fn decode(text: &[u8]) -> (Vec<u8>, bool) {
    let mut plain = Vec::with_capacity(text.len());
    let mut well_formed = true;
    let mut rest = text;
    while let Some((&first, mut after)) = rest.split_first() {
        let mut byte = first;
        if first == b'%' {
            match escape(after) {
                Some((escaped, behind)) => (byte, after) = (escaped, behind),
                None => well_formed = false,
            }
        }
        plain.push(byte);
        rest = after;
    }
    (plain, well_formed)
}

/// The byte of two hexadecimal digits, and what comes behind them.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, behind) = text.split_at_checked(2)?;
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = digit(digits[0])? << 4 | digit(digits[1])?;
    Some((u8::try_from(byte).ok()?, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        let check = |input: &str, want: &[u8], well_formed: bool| {
            assert_eq!(decode(input.as_bytes()), (want.to_vec(), well_formed), "{input}");
        };
        check("", b"", true);
        check("plain text+", b"plain text+", true);
        check("a%20b%0Ac", b"a b\nc", true);
        check("%E2%98%83", "\u{2603}".as_bytes(), true);
        check("%ff", b"\xff", true);
        check("100%", b"100%", false);
        check("%4", b"%4", false);
        check("%+1", b"%+1", false);
        check("%zz%41", b"%zzA", false);
        check("%%41", b"%A", false);
    }
}
