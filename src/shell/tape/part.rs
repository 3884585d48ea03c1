//! Events and effects as parts: their bytes cut into variant, id and body, so that a step which is like an
//! earlier one costs a few bytes. Tokens and requests only grow, so the id is written as its distance from the
//! expected one; a body that was on the tape lately is written as its number.
//!
//! All this works on postcard bytes: `variant, id, body` is how the encoding of most variants begins anyway,
//! and what the reader gives back is the very bytes that the chain has taken in. A variant that the tables do
//! not know is kept whole; it costs more and loses nothing.

use super::proto::{Frame, Header, Part};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use steplet_core::ids::Token;
use steplet_core::time::{Mono, Now, Wall};

/// Bodies of these lengths are numbered: shorter ones cost no more than their number.
const BODY_BYTES: std::ops::RangeInclusive<usize> = 4..=1024;
/// How many bodies can be named: a relist repeats after a few, and the memory is the agent's.
const BODIES_KEPT: usize = 128;

/// Which enum the bytes are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alphabet {
    Event,
    Effect,
}

/// What the number behind the variant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Id {
    /// There is none.
    Absent,
    /// The token of a call that begins: one more than the highest so far.
    NewToken,
    /// A token that is out: the highest so far, or a little less.
    OldToken,
    /// A request that arrives, and one that is there.
    NewRequest,
    OldRequest,
}

/// In the order of the variants of `Event`; a test holds them together.
const EVENT_IDS: [Id; 7] = [
    Id::Absent,     // Boot
    Id::Absent,     // Tick
    Id::OldToken,   // Done
    Id::OldToken,   // Item
    Id::NewRequest, // Request
    Id::OldRequest, // Gone
    Id::Absent,     // Signal
];

/// In the order of the variants of `Effect`.
const EFFECT_IDS: [Id; 8] = [
    Id::NewToken,   // Call
    Id::OldToken,   // Cancel
    Id::OldRequest, // Reply
    Id::OldRequest, // SendLog
    Id::OldRequest, // EndLog
    Id::OldRequest, // Stream
    Id::OldRequest, // SendFile
    Id::Absent,     // Exit
];

/// The token of a `Done`, from the bytes of an event.
pub fn done_token(event: &[u8]) -> Option<Token> {
    let (variant, rest) = varint(event)?;
    (variant == 2).then(|| varint(rest).map(|(id, _)| Token(id)))?
}

/// What the next ids and the next instant are measured from; the same in the recorder and in the reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base {
    mono: u64,
    wall_ahead: i64,
    token: u64,
    request: u64,
}

impl Base {
    pub fn at(now: Now) -> Base {
        Base { mono: now.mono.0, wall_ahead: ahead(now), ..Base::default() }
    }

    pub fn from_header(header: &Header) -> Base {
        Base {
            mono: header.mono_ns,
            wall_ahead: header.wall_ahead_ns,
            token: header.token,
            request: header.request,
        }
    }

    pub fn to_header(&self, header: &mut Header) {
        header.mono_ns = self.mono;
        header.wall_ahead_ns = self.wall_ahead;
        header.token = self.token;
        header.request = self.request;
    }

    /// Notes down the instant of a step that begins; exact, whatever the clocks do.
    pub fn put_instant(&mut self, frame: &mut Frame, now: Now) {
        let after = now.mono.0.wrapping_sub(self.mono);
        let most = u64::from(u32::MAX);
        let stamped_us = (after / 1_000).min(most);
        frame.stamp |= stamped_us << 32;
        frame.more_us = after / 1_000 - stamped_us;
        frame.more_ns = (after % 1_000) as u32;
        frame.wall_step_ns = ahead(now).wrapping_sub(self.wall_ahead);
        self.mono = now.mono.0;
        self.wall_ahead = ahead(now);
    }

    /// The instant that `put_instant` was given.
    pub fn instant(&mut self, frame: &Frame) -> Now {
        let after = (frame.stamp >> 32).wrapping_add(frame.more_us).wrapping_mul(1_000);
        self.mono = self.mono.wrapping_add(after).wrapping_add(u64::from(frame.more_ns));
        self.wall_ahead = self.wall_ahead.wrapping_add(frame.wall_step_ns);
        let wall = self.wall_ahead.wrapping_add(self.mono as i64);
        Now { mono: Mono(self.mono), wall: Wall(wall) }
    }

    fn expected(&self, id: Id) -> u64 {
        match id {
            Id::Absent => 0,
            Id::NewToken => self.token.wrapping_add(1),
            Id::OldToken => self.token,
            Id::NewRequest => self.request.wrapping_add(1),
            Id::OldRequest => self.request,
        }
    }

    fn seen(&mut self, id: Id, number: u64) {
        match id {
            Id::NewToken => self.token = number,
            Id::NewRequest => self.request = number,
            Id::Absent | Id::OldToken | Id::OldRequest => {}
        }
    }
}

/// The low half of a frame's stamp.
pub fn stamp(chain: [u8; 4]) -> u64 {
    u64::from(u32::from_le_bytes(chain))
}

pub fn stamped_chain(stamp: u64) -> [u8; 4] {
    (stamp as u32).to_le_bytes()
}

fn ahead(now: Now) -> i64 {
    now.wall.0.wrapping_sub(now.mono.0 as i64)
}

fn kind(alphabet: Alphabet, variant: u64) -> Id {
    let table: &[Id] = match alphabet {
        Alphabet::Event => &EVENT_IDS,
        Alphabet::Effect => &EFFECT_IDS,
    };
    usize::try_from(variant).ok().and_then(|v| table.get(v)).copied().unwrap_or(Id::Absent)
}

/// The bodies that the recorder may name.
#[derive(Debug, Default)]
pub struct Encoder {
    pub base: Base,
    numbers: HashMap<Rc<[u8]>, u64>,
    kept: VecDeque<Rc<[u8]>>,
    last: u64,
    new_bodies: u64,
}

impl Encoder {
    pub fn new(base: Base) -> Encoder {
        Encoder { base, ..Encoder::default() }
    }

    /// `bytes` is one whole encoded event or effect.
    pub fn part(&mut self, alphabet: Alphabet, bytes: &[u8]) -> Part {
        let (variant, rest) = varint(bytes).expect("an enum encodes its variant first");
        let kind = kind(alphabet, variant);
        let mut part = Part {
            variant: u32::try_from(variant).expect("enums have few variants"),
            ..Part::default()
        };
        let body = if kind == Id::Absent {
            rest
        } else {
            let (id, body) = varint(rest).expect("the tables say that an id follows");
            part.id = id.wrapping_sub(self.base.expected(kind)) as i64;
            self.base.seen(kind, id);
            body
        };
        if let Some(number) = self.numbers.get(body) {
            part.same_as = *number;
        } else {
            part.body = body.to_vec();
            self.keep(body);
        }
        part
    }

    /// How many bodies were written out that could not be named, short ones aside.
    pub fn new_bodies(&self) -> u64 {
        self.new_bodies
    }

    fn keep(&mut self, body: &[u8]) {
        self.new_bodies += u64::from(body.len() >= *BODY_BYTES.start());
        if !BODY_BYTES.contains(&body.len()) {
            return;
        }
        self.last += 1;
        let body: Rc<[u8]> = body.into();
        self.kept.push_back(body.clone());
        self.numbers.insert(body, self.last);
        if self.kept.len() > BODIES_KEPT {
            let oldest = self.kept.pop_front().expect("there are many");
            self.numbers.remove(&oldest);
        }
    }
}

/// The bodies that a reader may be asked for.
#[derive(Debug, Default)]
pub struct Decoder {
    pub base: Base,
    kept: VecDeque<Rc<[u8]>>,
    last: u64,
}

impl Decoder {
    pub fn new(base: Base) -> Decoder {
        Decoder { base, ..Decoder::default() }
    }

    /// Appends the bytes that `Encoder::part` was given; None when the part names a body that is not there.
    pub fn append(&mut self, alphabet: Alphabet, part: &Part, out: &mut Vec<u8>) -> Option<()> {
        put_varint(out, u64::from(part.variant));
        let kind = kind(alphabet, u64::from(part.variant));
        if kind != Id::Absent {
            let id = self.base.expected(kind).wrapping_add(part.id as u64);
            self.base.seen(kind, id);
            put_varint(out, id);
        }
        if part.same_as == 0 {
            out.extend_from_slice(&part.body);
            self.keep(&part.body);
        } else {
            let age = self.last.checked_sub(part.same_as)?;
            let age = usize::try_from(age).ok()?;
            let place = self.kept.len().checked_sub(age.checked_add(1)?)?;
            out.extend_from_slice(self.kept.get(place)?);
        }
        Some(())
    }

    fn keep(&mut self, body: &[u8]) {
        if !BODY_BYTES.contains(&body.len()) {
            return;
        }
        self.last += 1;
        self.kept.push_back(body.into());
        if self.kept.len() > BODIES_KEPT {
            self.kept.pop_front();
        }
    }
}

/// Reads a number as postcard and protobuf write it: seven bits a byte, lowest first.
pub fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (place, byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if place == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * place);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[place + 1..]));
        }
    }
    None
}

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use steplet_core::chain::encode_event;
    use steplet_core::effect::{Call, Effect, LogQuery, Reply};
    use steplet_core::effect::{DiskOp, KernelOp};
    use steplet_core::event::{Event, Listener, Outcome, Request, Signal};
    use steplet_core::ids::RequestId;

    fn request(id: u64) -> Event {
        Event::Request(Box::new(Request {
            id: RequestId(id),
            listener: Listener::Healthz,
            method: "GET".into(),
            path: "/healthz".into(),
            query: vec![],
            loopback: true,
            certificate: None,
            bearer: None,
            upgrade: false,
            body: Bytes::new(),
        }))
    }

    fn effects() -> Vec<Effect> {
        let reply = Reply { status: 200, content_type: "text/plain".into(), body: Bytes::new() };
        vec![
            Effect::Call {
                token: Token(301),
                call: Call::Disk(DiskOp::List { path: "/etc/kubernetes".into() }),
            },
            Effect::Cancel(Token(300)),
            Effect::Reply { request: RequestId(900), reply },
            Effect::SendLog { request: RequestId(901), log: Box::new(LogQuery::default()) },
            Effect::EndLog { request: RequestId(901) },
            Effect::Stream { request: RequestId(902), url: "http://127.0.0.1:1/".into() },
            Effect::SendFile { request: RequestId(903), root: "/".into(), path: "a".into() },
            Effect::Exit(-1),
        ]
    }

    fn events() -> Vec<Event> {
        vec![
            Event::Tick,
            Event::Done { token: Token(300), outcome: Outcome::Same },
            request(901),
            Event::Gone { request: RequestId(901) },
            Event::Signal(Signal::Interrupt),
        ]
    }

    /// The ids that a part carries when the highest token is 300 and the highest request 900.
    fn id(alphabet: Alphabet, bytes: &[u8]) -> i64 {
        let base = Base { token: 300, request: 900, ..Base::default() };
        Encoder::new(base).part(alphabet, bytes).id
    }

    #[test]
    fn the_tables_follow_the_enums() {
        let ids = |all: &[Vec<u8>], alphabet| -> Vec<i64> {
            all.iter().map(|bytes| id(alphabet, bytes)).collect()
        };
        let events: Vec<_> = events().iter().map(encode_event).collect();
        assert_eq!(ids(&events, Alphabet::Event), [0, 0, 0, 1, 0]);
        let effects: Vec<_> =
            effects().iter().map(|effect| postcard::to_allocvec(effect).unwrap()).collect();
        assert_eq!(ids(&effects, Alphabet::Effect), [0, 0, 0, 1, 1, 2, 3, 0]);
        assert_eq!(done_token(&events[1]), Some(Token(300)));
        assert_eq!(done_token(&events[0]), None);
    }

    #[test]
    fn parts_give_back_the_bytes() {
        let mut encoder = Encoder::default();
        let mut decoder = Decoder::default();
        let ops = |n: u64| {
            let path = format!("kubepods/{}", n % 700);
            let call = Call::Kernel(KernelOp::ListCgroups { path });
            Effect::Call { token: Token(n * n), call }
        };
        let mut all: Vec<_> = effects();
        all.extend((0..2000).map(ops));
        all.extend((0..2000).map(|_| ops(3)));
        for effect in all {
            let bytes = postcard::to_allocvec(&effect).unwrap();
            let part = encoder.part(Alphabet::Effect, &bytes);
            let mut back = Vec::new();
            decoder.append(Alphabet::Effect, &part, &mut back).unwrap();
            assert_eq!(back, bytes);
        }
        assert_eq!((encoder.kept.len(), encoder.numbers.len()), (BODIES_KEPT, BODIES_KEPT));
        assert_eq!(encoder.base, decoder.base);
    }

    #[test]
    fn an_equal_call_is_a_reference() {
        let mut encoder = Encoder::default();
        let mut call = |token| {
            let call = Call::Disk(DiskOp::List { path: "/var/log/pods".into() });
            let bytes = postcard::to_allocvec(&Effect::Call { token: Token(token), call }).unwrap();
            encoder.part(Alphabet::Effect, &bytes)
        };
        assert_eq!(call(1).same_as, 0);
        assert_eq!(call(2), Part { same_as: 1, ..Part::default() });
    }

    #[test]
    fn a_reference_to_nothing_is_refused() {
        let mut decoder = Decoder::default();
        for same_as in [1, 2, u64::MAX] {
            let part = Part { same_as, ..Part::default() };
            assert_eq!(decoder.append(Alphabet::Effect, &part, &mut Vec::new()), None);
        }
    }

    #[test]
    fn clocks_come_back_exactly() {
        let at = |mono, wall| Now { mono: Mono(mono), wall: Wall(wall) };
        let mut to = Base::default();
        let mut from = Base::default();
        for now in [at(5, -7), at(5_000_001, 4_999_989), at(u64::MAX, i64::MIN), at(0, i64::MAX)] {
            let mut frame = Frame { stamp: 0xffff_ffff, ..Frame::default() };
            to.put_instant(&mut frame, now);
            assert_eq!(from.instant(&frame), now);
            assert_eq!(frame.stamp as u32, u32::MAX, "the chain stays");
        }
        to.put_instant(&mut Frame::default(), at(1_000, 10_000));
        let mut frame = Frame::default();
        to.put_instant(&mut frame, at(3_000, 12_000));
        assert_eq!(
            frame,
            Frame { stamp: 2 << 32, ..Frame::default() },
            "a steady clock costs nothing"
        );
    }

    #[test]
    fn varints_are_bounded() {
        for value in [0, 1, 127, 128, 1 << 40, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(varint(&out), Some((value, &[][..])));
        }
        assert_eq!(varint(&[0x80; 10]), None);
        assert_eq!(varint(&[0xff; 11]), None);
    }
}
