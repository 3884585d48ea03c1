//! Reads the protobuf wire format field by field, without a schema and without copying.
//!
//! Source: protobuf.dev, "Encoding".

/// The bytes are not protobuf, or not the message that was meant: a field runs over the end, a
/// varint over ten bytes, a group is used, a message stands where none can, or there are too many
/// fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// One field as it stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    /// The value: a varint's bytes, four or eight bytes, or the payload behind a length.
    pub(crate) value: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
    Fixed32 = 5,
}

const NUMBER_MAX: u64 = (1 << 29) - 1;

/// The fields of a message, in the order of the wire. After an error nothing follows.
pub(crate) struct Fields<'a>(&'a [u8]);

pub(crate) fn fields(message: &[u8]) -> Fields<'_> {
    Fields(message)
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(Malformed))
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<Field<'a>> {
        let key = self.varint()?;
        let number = key >> 3;
        if number == 0 || number > NUMBER_MAX {
            return None;
        }
        let (kind, value) = match key & 7 {
            0 => {
                let before = self.0;
                self.varint()?;
                (Kind::Varint, &before[..before.len() - self.0.len()])
            }
            1 => (Kind::Fixed64, self.bytes(8)?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                (Kind::Bytes, self.bytes(length)?)
            }
            5 => (Kind::Fixed32, self.bytes(4)?),
            _ => return None,
        };
        Some(Field { number: number as u32, kind, value })
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for at in 0..10 {
            let byte = *self.0.get(at)?;
            // The tenth byte holds the last bit of 64.
            if at == 9 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.0 = &self.0[at + 1..];
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(bytes)
    }
}

/// Writes one field; `value` as [`Field::value`] says.
pub(crate) fn put_field(into: &mut Vec<u8>, number: u32, kind: Kind, value: &[u8]) {
    put_varint(into, u64::from(number) << 3 | kind as u64);
    if kind == Kind::Bytes {
        put_varint(into, value.len() as u64);
    }
    into.extend_from_slice(value);
}

fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_written_back() {
        let check = |message: &[u8], want: &[(u32, Kind, &[u8])]| {
            let read: Vec<_> = fields(message).map(|f| f.expect("well formed")).collect();
            let plain: Vec<_> = read.iter().map(|f| (f.number, f.kind, f.value)).collect();
            assert_eq!(plain, want);
            let mut back = Vec::new();
            read.iter().for_each(|f| put_field(&mut back, f.number, f.kind, f.value));
            assert_eq!(back, message);
        };
        check(&[], &[]);
        check(&[0x08, 0x96, 0x01], &[(1, Kind::Varint, &[0x96, 0x01])]);
        check(&[0x12, 2, b'h', b'i', 0x1a, 0], &[(2, Kind::Bytes, b"hi"), (3, Kind::Bytes, b"")]);
        check(&[0x0d, 1, 2, 3, 4], &[(1, Kind::Fixed32, &[1, 2, 3, 4])]);
        check(&[0x09, 1, 2, 3, 4, 5, 6, 7, 8], &[(1, Kind::Fixed64, &[1, 2, 3, 4, 5, 6, 7, 8])]);
        check(&[0x82, 0x7d, 1, 9], &[(2000, Kind::Bytes, &[9])]);
    }

    #[test]
    fn broken_bytes_end_in_an_error() {
        let check = |message: &[u8]| {
            let read: Vec<_> = fields(message).collect();
            assert_eq!(read.last(), Some(&Err(Malformed)), "{message:?}");
        };
        check(&[0x80]);
        check(&[0x08]);
        check(&[0x08, 0x80]);
        check(&[0x00, 0x01]);
        check(&[0x12, 3, b'h', b'i']);
        check(&[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        check(&[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02]);
        check(&[0x0b, 0x0c]);
        check(&[0x0e, 0]);
        check(&[0x0d, 1, 2, 3]);
        check(&[0x82, 0x80, 0x80, 0x80, 0x80, 0x01, 0]);
    }
}
