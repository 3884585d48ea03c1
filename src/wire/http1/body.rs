//! Bodies of HTTP/1 requests, by length or in chunks.

use bytes::{Buf, Bytes, BytesMut};

use super::head::{BodyKind, Refusal};

/// Longest line of a chunk's size with its extensions, and all trailers together.
const LINE_MAX: usize = 4096;
const TRAILERS_MAX: usize = 64 * 1024;

/// Reads one body from the front of a connection's input.
#[derive(Debug)]
pub(crate) struct BodyReader {
    state: State,
    /// Bytes that the body may still have.
    left: u64,
    /// Bytes of the current line already searched for its end.
    scanned: usize,
    trailers: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// This many bytes of data, the last of the body.
    Last(u64),
    ChunkSize,
    Chunk(u64),
    /// The line end after a chunk's data.
    ChunkEnd,
    Trailers,
    Done,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Data(Bytes),
    End,
    /// More input is needed.
    Wait,
}

impl BodyReader {
    /// `Err` is 413 if a known length is above `max`.
    pub(crate) fn new(kind: BodyKind, max: u64) -> Result<BodyReader, Refusal> {
        let state = match kind {
            BodyKind::Length(n) if n > max => return Err(Refusal(413)),
            BodyKind::Length(n) => State::Last(n),
            BodyKind::Chunked => State::ChunkSize,
        };
        Ok(BodyReader { state, left: max, scanned: 0, trailers: 0 })
    }

    /// The next part; after `End` nothing may be asked.
    pub(crate) fn next(&mut self, input: &mut BytesMut) -> Result<Part, Refusal> {
        loop {
            match self.state {
                State::Last(0) => self.state = State::Done,
                State::Chunk(0) => self.state = State::ChunkEnd,
                State::Last(_) | State::Chunk(_) if input.is_empty() => return Ok(Part::Wait),
                State::Last(n) => {
                    let (data, n) = take(input, n);
                    self.state = State::Last(n);
                    return Ok(Part::Data(data));
                }
                State::Chunk(n) => {
                    let (data, n) = take(input, n);
                    self.state = State::Chunk(n);
                    return Ok(Part::Data(data));
                }
                State::ChunkSize => {
                    let Some(line) = self.line(input)? else { return Ok(Part::Wait) };
                    let Ok(httparse::Status::Complete((_, size))) =
                        httparse::parse_chunk_size(&line)
                    else {
                        return Err(Refusal(400));
                    };
                    // httparse takes a line without digits as zero, which would end the body early.
                    if !line[0].is_ascii_hexdigit() {
                        return Err(Refusal(400));
                    }
                    self.left = self.left.checked_sub(size).ok_or(Refusal(413))?;
                    self.state = if size == 0 { State::Trailers } else { State::Chunk(size) };
                }
                State::ChunkEnd => match input[..] {
                    [b'\r', b'\n', ..] => {
                        input.advance(2);
                        self.state = State::ChunkSize;
                    }
                    [] | [b'\r'] => return Ok(Part::Wait),
                    _ => return Err(Refusal(400)),
                },
                // Read over: nothing here has a use for trailers.
                State::Trailers => {
                    let Some(line) = self.line(input)? else { return Ok(Part::Wait) };
                    self.trailers += line.len();
                    if self.trailers > TRAILERS_MAX {
                        return Err(Refusal(431));
                    }
                    if line[..] == b"\r\n"[..] {
                        self.state = State::Done;
                    }
                }
                State::Done => return Ok(Part::End),
            }
        }
    }

    /// A line with its end, which must be CR LF: a lone LF is read differently by different
    /// servers.
    fn line(&mut self, input: &mut BytesMut) -> Result<Option<BytesMut>, Refusal> {
        match input[self.scanned..].iter().position(|b| *b == b'\n') {
            Some(at) if self.scanned + at >= LINE_MAX => Err(Refusal(400)),
            Some(at) => {
                let line = input.split_to(self.scanned + at + 1);
                self.scanned = 0;
                if line.ends_with(b"\r\n") { Ok(Some(line)) } else { Err(Refusal(400)) }
            }
            None if input.len() >= LINE_MAX => Err(Refusal(400)),
            None => {
                self.scanned = input.len();
                Ok(None)
            }
        }
    }
}

/// Up to `n` bytes, copied so that a kept part does not keep the connection's buffer.
fn take(input: &mut BytesMut, n: u64) -> (Bytes, u64) {
    let len = usize::try_from(n).unwrap_or(usize::MAX).min(input.len());
    let data = Bytes::copy_from_slice(&input[..len]);
    input.advance(len);
    (data, n - len as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body in pieces of `step` bytes, and what is left behind it.
    fn read(kind: BodyKind, input: &[u8], step: usize) -> Result<(String, String), u16> {
        let mut reader = BodyReader::new(kind, 100).map_err(|r| r.0)?;
        let mut pieces = input.chunks(step);
        let mut buffer = BytesMut::new();
        let mut body = Vec::new();
        loop {
            match reader.next(&mut buffer).map_err(|r| r.0)? {
                Part::Data(data) => body.extend_from_slice(&data),
                Part::Wait => match pieces.next() {
                    Some(piece) => buffer.extend_from_slice(piece),
                    None => return Err(0),
                },
                Part::End => {
                    pieces.for_each(|piece| buffer.extend_from_slice(piece));
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    return Ok((text(&body), text(&buffer)));
                }
            }
        }
    }

    #[test]
    fn bodies_in_all_pieces() {
        let check = |kind, input: &str, want: Result<(&str, &str), u16>| {
            let want = want.map(|(body, rest)| (body.to_owned(), rest.to_owned()));
            for step in 1..=input.len().max(1) {
                assert_eq!(read(kind, input.as_bytes(), step), want, "{input:?} by {step}");
            }
        };
        let chunked = BodyKind::Chunked;
        check(BodyKind::Length(0), "rest", Ok(("", "rest")));
        check(BodyKind::Length(3), "abcrest", Ok(("abc", "rest")));
        check(BodyKind::Length(3), "ab", Err(0));
        check(BodyKind::Length(101), "", Err(413));
        check(chunked, "0\r\n\r\nrest", Ok(("", "rest")));
        check(chunked, "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", Ok(("abcde", "")));
        check(
            chunked,
            "A\r\n0123456789\r\n0\r\nT: v\r\nU: v\r\n\r\nrest",
            Ok(("0123456789", "rest")),
        );
        check(chunked, "3\r\nabcd\r\n", Err(400));
        check(chunked, "3\nabc\r\n", Err(400));
        check(chunked, "\r\n", Err(400));
        check(chunked, ";x\r\n", Err(400));
        check(chunked, "-1\r\n", Err(400));
        check(chunked, "0x1\r\na\r\n", Err(400));
        check(chunked, "10000000000000000\r\n", Err(400));
        check(chunked, "ffffffffffffffff\r\n", Err(413));
        check(chunked, "65\r\n", Err(413));
        check(chunked, "64\r\n", Err(0));
        check(chunked, "0\r\nT: v\n\r\n", Err(400));
    }

    #[test]
    fn lines_and_trailers_are_bounded() {
        let long = format!("1;{}", "x".repeat(2 * LINE_MAX));
        assert_eq!(read(BodyKind::Chunked, long.as_bytes(), 1000), Err(400));
        let many = format!("0\r\n{}", "T: v\r\n".repeat(TRAILERS_MAX / 6 + 1));
        assert_eq!(read(BodyKind::Chunked, many.as_bytes(), 1000), Err(431));
    }
}
