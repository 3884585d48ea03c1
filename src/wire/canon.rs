//! Lists of a runtime, freed from the order that the runtime's hash maps gave them.
//!
//! A runtime in Go answers the same list in another order each time, and writes the map fields of
//! each entry in another order too. [`digest`] tells whether anything changed without decoding or
//! sorting; [`canonical`] gives the bytes that are the same for the same list.
//!
//! Why a sum serves: the digest of a message adds one hash for each field, so the order of fields
//! does not count, which is what protobuf says of fields with different numbers. Among fields with
//! one number the order does count, unless the shape calls them a set; so the hash of any other
//! field contains how many of its number came before. A field that this file does not know is
//! therefore taken as ordered: at worst a mere reordering looks like a change, never a change like
//! a mere reordering. Each inner sum is hashed again before it is added one level up, with the
//! length of its message, lest fields could wander from entry to entry unseen.

use std::borrow::Cow;
use std::cmp::Ordering;

use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::protobuf::{Field, Kind, Malformed, fields, put_field};

/// What must be known of a message: its fields that are sets, and those that lead to sets.
pub struct Shape(&'static [(u32, Inner)]);

enum Inner {
    /// Repeated messages whose order means nothing, told apart by their field 1: list entries by
    /// id, and map entries, which are messages of key 1 and value 2.
    Set(&'static Shape),
    /// A message with sets inside.
    Message(&'static Shape),
}

static MAP_ENTRY: Shape = Shape(&[]);
static POD_SANDBOX: Shape = Shape(&[(5, Inner::Set(&MAP_ENTRY)), (6, Inner::Set(&MAP_ENTRY))]);
static IMAGE_SPEC: Shape = Shape(&[(2, Inner::Set(&MAP_ENTRY))]);
static CONTAINER: Shape = Shape(&[
    (4, Inner::Message(&IMAGE_SPEC)),
    (8, Inner::Set(&MAP_ENTRY)),
    (9, Inner::Set(&MAP_ENTRY)),
]);

/// `runtime.v1.ListPodSandboxResponse`.
pub static POD_SANDBOXES: Shape = Shape(&[(1, Inner::Set(&POD_SANDBOX))]);
/// `runtime.v1.ListContainersResponse`.
pub static CONTAINERS: Shape = Shape(&[(1, Inner::Set(&CONTAINER))]);

impl Shape {
    fn inner(&self, field: &Field<'_>) -> Option<&'static Inner> {
        self.0.iter().find(|(number, _)| *number == field.number).map(|(_, inner)| inner)
    }
}

/// A digest that is equal for lists that differ only in order. It allocates nothing.
pub fn digest(list: &[u8], shape: &Shape) -> Result<u128, Malformed> {
    // Fields seen so far, by number; the last place is shared by all high numbers, whose order then
    // counts.
    let mut seen = [0u32; 32];
    let mut sum = 0u128;
    for field in fields(list) {
        let field = field?;
        let hash = match shape.inner(&field) {
            Some(Inner::Set(shape)) => inner_digest(&field, shape)?,
            inner => {
                let seen = &mut seen[(field.number as usize).min(31)];
                *seen += 1;
                let place = seed(&field, *seen);
                match inner {
                    Some(Inner::Message(shape)) => {
                        let inner = inner_digest(&field, shape)?;
                        xxh3_128_with_seed(&inner.to_le_bytes(), place)
                    }
                    _ => xxh3_128_with_seed(field.value, place),
                }
            }
        };
        sum = sum.wrapping_add(hash);
    }
    let mut last = [0; 24];
    last[..16].copy_from_slice(&sum.to_le_bytes());
    last[16..].copy_from_slice(&(list.len() as u64).to_le_bytes());
    Ok(xxh3_128_with_seed(&last, 0))
}

fn inner_digest(field: &Field<'_>, shape: &Shape) -> Result<u128, Malformed> {
    if field.kind != Kind::Bytes {
        return Err(Malformed);
    }
    let inner = digest(field.value, shape)?;
    Ok(xxh3_128_with_seed(&inner.to_le_bytes(), seed(field, 0)))
}

/// Number, kind and place in one seed: 29, 3 and 32 bits.
fn seed(field: &Field<'_>, place: u32) -> u64 {
    u64::from(place) << 32 | u64::from(field.number) << 3 | field.kind as u64
}

/// More fields than this in one message are refused by [`canonical`], which keeps a record of each.
const FIELDS_MAX: usize = 100_000;

struct Part<'a> {
    number: u32,
    /// Of a set only.
    key: Option<&'a [u8]>,
    kind: Kind,
    value: Cow<'a, [u8]>,
}

impl Part<'_> {
    fn order(&self, other: &Part<'_>) -> Ordering {
        let order = (self.number, self.key).cmp(&(other.number, other.key));
        order.then_with(|| self.key.map_or(Ordering::Equal, |_| self.value.cmp(&other.value)))
    }
}

/// The same list with its fields by number and its sets by their field 1; never longer than `list`.
///
/// It decodes to the same list in another order. Entries with one id are ordered by their bytes.
pub fn canonical(list: &[u8], shape: &Shape) -> Result<Vec<u8>, Malformed> {
    let mut parts = Vec::new();
    for field in fields(list) {
        let Field { number, kind, value } = field?;
        let (key, value) = match shape.inner(&field?) {
            None => (None, Cow::Borrowed(value)),
            Some(_) if kind != Kind::Bytes => return Err(Malformed),
            Some(Inner::Set(shape)) => (Some(key(value)?), canonical(value, shape)?.into()),
            Some(Inner::Message(shape)) => (None, canonical(value, shape)?.into()),
        };
        if parts.len() == FIELDS_MAX {
            return Err(Malformed);
        }
        parts.push(Part { number, key, kind, value });
    }
    // Stable, so that what is not a set keeps its order.
    parts.sort_by(Part::order);
    let mut sorted = Vec::with_capacity(list.len());
    for part in parts {
        put_field(&mut sorted, part.number, part.kind, &part.value);
    }
    Ok(sorted)
}

/// What a member of a set is told apart by.
/// The value of a message's last field 1, as a decoder would keep it; empty if it has none.
fn key(message: &[u8]) -> Result<&[u8], Malformed> {
    let mut value: &[u8] = &[];
    for field in fields(message) {
        let field = field?;
        if field.number == 1 {
            value = field.value;
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(parts: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        parts.iter().for_each(|(number, value)| put_field(&mut bytes, *number, Kind::Bytes, value));
        bytes
    }

    /// A list of one sandbox of these fields.
    fn sandbox(parts: &[(u32, &[u8])]) -> Vec<u8> {
        message(&[(1, &message(parts))])
    }

    #[test]
    fn order_counts_where_it_means_something() {
        let check = |a: &[(u32, &[u8])], b: &[(u32, &[u8])], same: bool| {
            let (a, b) = (sandbox(a), sandbox(b));
            let digests = [&a, &b].map(|l| digest(l, &POD_SANDBOXES).expect("well formed"));
            assert_eq!(digests[0] == digests[1], same, "{a:?} {b:?}");
            let bytes = [&a, &b].map(|l| canonical(l, &POD_SANDBOXES).expect("well formed"));
            assert_eq!(bytes[0] == bytes[1], same, "{a:?} {b:?}");
        };
        let (k, l): (&[u8], &[u8]) = (b"\x0a\x01k\x12\x01v", b"\x0a\x01l\x12\x01v");
        check(&[(1, b"a"), (5, k), (5, l)], &[(5, l), (1, b"a"), (5, k)], true);
        check(&[(5, k), (6, l)], &[(5, l), (6, k)], false);
        check(&[(5, k), (5, k)], &[(5, k)], false);
        // A field that nobody knows is taken as ordered.
        check(&[(40, k), (40, l)], &[(40, l), (40, k)], false);
        check(&[(1, b"a")], &[(1, b"")], false);
        check(&[(1, b"")], &[], false);
    }

    #[test]
    fn fields_do_not_wander_between_entries() {
        let list = |entries: [&[(u32, &[u8])]; 2]| {
            let [a, b] = entries.map(message);
            message(&[(1, &a), (1, &b)])
        };
        let whole = list([&[(1, b"a"), (3, b"x")], &[(1, b"b"), (3, b"y")]]);
        let crossed = list([&[(1, b"a"), (3, b"y")], &[(1, b"b"), (3, b"x")]]);
        assert_ne!(digest(&whole, &POD_SANDBOXES), digest(&crossed, &POD_SANDBOXES));
    }

    #[test]
    fn malformed_lists_are_refused() {
        let check = |list: &[u8]| {
            assert_eq!(digest(list, &POD_SANDBOXES), Err(Malformed), "{list:?}");
            assert_eq!(canonical(list, &POD_SANDBOXES), Err(Malformed), "{list:?}");
        };
        check(&[0x0a, 5, 1]);
        check(&[0x08, 1]);
        check(&message(&[(1, &[0x28, 1])]));
        check(&sandbox(&[(5, &[0x0a, 9])]));
    }

    #[test]
    fn too_many_fields_are_not_recorded() {
        let list = [0x0a, 0].repeat(FIELDS_MAX + 1);
        assert!(digest(&list, &POD_SANDBOXES).is_ok());
        assert_eq!(canonical(&list, &POD_SANDBOXES), Err(Malformed));
    }
}
