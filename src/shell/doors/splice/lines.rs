//! The lines of a container's log, from the bytes of its file to what a client sees.
//!
//! Upstream: cri-client/pkg/logs (v1.36); design document "CRI: Log management". A line is
//! `<RFC 3339> stdout|stderr P|F <text>`, or docker's JSON; the first line says which. Pure.

use serde::Deserialize;
use std::borrow::Cow;
use steplet_api::time::parse_ns;
use steplet_core::effect::LogQuery;

/// Time, stream and tags of a line end within this.
const HEAD_MAX: usize = 256;
/// A line of docker's JSON, which cuts what a container says at 16 KiB and may write a byte as six.
const JSON_MAX: usize = 128 * 1024;

/// What the first line is neither of.
#[derive(Debug, PartialEq)]
pub struct Unsupported(pub String);

/// Picks from a log what was asked for. However long a line is, no more of it than its head has to be at hand.
pub struct Lines {
    timestamps: bool,
    since: Option<i64>,
    /// Bytes and lines that may still be written.
    bytes_left: u64,
    lines_left: u64,
    format: Option<Format>,
    at: Place,
    /// What was written last ended in a line break: a time stamp may follow.
    fresh: bool,
}

#[derive(Clone, Copy)]
enum Format {
    Cri,
    Json,
}

/// Where in a line the next byte lies.
enum Place {
    Head,
    Text {
        shown: bool,
        partial: bool,
        empty: bool,
    },
    /// In a line that is left out.
    Skipped,
}

struct Head<'a> {
    time: &'a str,
    ns: i64,
    partial: bool,
    text: usize,
}

#[derive(Deserialize)]
struct JsonLine<'a> {
    #[serde(borrow, default)]
    log: Cow<'a, str>,
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(default)]
    stream: &'a str,
}

impl Lines {
    pub fn new(query: &LogQuery) -> Lines {
        // A file that is followed may grow behind the lines that were asked for.
        let lines = query.tail_lines.filter(|_| !query.follow);
        Lines {
            timestamps: query.timestamps,
            since: query.since,
            bytes_left: query.limit_bytes.unwrap_or(u64::MAX),
            lines_left: lines.unwrap_or(u64::MAX),
            format: None,
            at: Place::Head,
            fresh: true,
        }
    }

    /// Everything that was asked for is written.
    pub fn is_enough(&self) -> bool {
        self.bytes_left == 0 || self.lines_left == 0
    }

    /// The next bytes are the beginning of another file.
    pub fn restart(&mut self) {
        self.at = Place::Head;
    }

    /// Reads from the front of `input`, writes to `out`, and says how much it has read. The rest is the
    /// beginning of a line and is wanted again with more behind it. With `last` there is nothing behind it.
    pub fn read(
        &mut self,
        input: &[u8],
        last: bool,
        out: &mut Vec<u8>,
    ) -> Result<usize, Unsupported> {
        let mut read = 0;
        while read < input.len() && !self.is_enough() {
            let rest = &input[read..];
            let end = rest.iter().position(|b| *b == b'\n');
            let line = &rest[..end.map_or(rest.len(), |at| at + 1)];
            let whole = end.is_some() || last;
            let n = match self.at {
                Place::Head => self.begin(line, whole, out)?,
                Place::Text { .. } => self.text(line, whole, out),
                Place::Skipped => {
                    self.go_behind(whole);
                    line.len()
                }
            };
            if n == 0 {
                break;
            }
            read += n;
        }
        Ok(read)
    }

    /// How much of a line is understood; 0: more of it must be seen.
    fn begin(&mut self, line: &[u8], whole: bool, out: &mut Vec<u8>) -> Result<usize, Unsupported> {
        if !matches!(self.format, Some(Format::Json)) {
            if let Some(head) = head(line) {
                self.format = Some(Format::Cri);
                let shown = self.since.is_none_or(|since| head.ns >= since);
                if shown {
                    self.stamp(head.time, out);
                }
                self.at = Place::Text { shown, partial: head.partial, empty: true };
                return Ok(head.text);
            }
            if !whole && line.len() < HEAD_MAX {
                return Ok(0);
            }
        }
        if !matches!(self.format, Some(Format::Cri)) {
            if !whole && line.len() < JSON_MAX {
                return Ok(0);
            }
            if let Some(said) = json(line) {
                self.format = Some(Format::Json);
                self.show_json(&said, out);
                return Ok(line.len());
            }
        }
        if self.format.is_none() {
            let shown = &line[..line.len().min(HEAD_MAX)];
            return Err(Unsupported(String::from_utf8_lossy(shown).into_owned()));
        }
        self.go_behind(whole);
        Ok(line.len())
    }

    fn go_behind(&mut self, whole: bool) {
        self.at = if whole { Place::Head } else { Place::Skipped };
    }

    fn text(&mut self, line: &[u8], whole: bool, out: &mut Vec<u8>) -> usize {
        let Place::Text { shown, partial, empty } = &mut self.at else { return 0 };
        let (shown, partial) = (*shown, *partial);
        let text = match line.strip_suffix(b"\n") {
            Some(text) if partial => text,
            _ => line,
        };
        *empty &= text.is_empty();
        let empty = *empty;
        if shown {
            self.write(text, out);
        }
        if whole {
            self.end_text(empty || text.ends_with(b"\n"));
        }
        line.len()
    }

    fn end_text(&mut self, fresh: bool) {
        self.fresh = fresh;
        self.lines_left = self.lines_left.saturating_sub(1);
        self.at = Place::Head;
    }

    fn show_json(&mut self, said: &JsonLine<'_>, out: &mut Vec<u8>) {
        if self.since.is_none_or(|since| parse_ns(&said.time).is_some_and(|ns| ns >= since)) {
            self.stamp(&said.time, out);
            self.write(said.log.as_bytes(), out);
        }
        self.end_text(said.log.is_empty() || said.log.ends_with('\n'));
    }

    fn stamp(&mut self, time: &str, out: &mut Vec<u8>) {
        if self.timestamps && self.fresh {
            self.write(in_full(time).as_bytes(), out);
            self.write(b" ", out);
        }
    }

    fn write(&mut self, text: &[u8], out: &mut Vec<u8>) {
        let n = usize::try_from(self.bytes_left).unwrap_or(usize::MAX).min(text.len());
        self.bytes_left -= n as u64;
        out.extend_from_slice(&text[..n]);
    }
}

fn head(line: &[u8]) -> Option<Head<'_>> {
    let line = &line[..line.len().min(HEAD_MAX)];
    let mut ends = line.iter().enumerate().filter(|(_, b)| **b == b' ').map(|(at, _)| at);
    let (time_end, stream_end, tags_end) = (ends.next()?, ends.next()?, ends.next()?);
    let time = std::str::from_utf8(&line[..time_end]).ok()?;
    let ns = parse_ns(time)?;
    if !matches!(&line[time_end + 1..stream_end], b"stdout" | b"stderr") {
        return None;
    }
    // Further tags may come to be, behind colons.
    let tag = line[stream_end + 1..tags_end].split(|b| *b == b':').next();
    Some(Head { time, ns, partial: tag == Some(b"P"), text: tags_end + 1 })
}

fn json(line: &[u8]) -> Option<JsonLine<'_>> {
    let said: JsonLine<'_> = serde_json::from_slice(line).ok()?;
    let good = parse_ns(&said.time).is_some() && matches!(said.stream, "stdout" | "stderr");
    good.then_some(said)
}

/// A time with nine digits behind the point, in its own zone, as `kubectl logs --timestamps` shows it.
fn in_full(time: &str) -> String {
    const SECONDS: usize = "2006-01-02T15:04:05".len();
    let (seconds, rest) = time.split_at(SECONDS);
    let zone = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (fraction, zone) = rest.split_at(zone);
    let digits: String = fraction.trim_start_matches('.').chars().take(9).collect();
    let zone = if matches!(zone, "+00:00" | "-00:00") { "Z" } else { zone };
    format!("{seconds}.{digits:0<9}{zone}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-11-30T15:04:05.1Z stdout F one\n\
                       2026-11-30T15:04:06Z stderr P tw\n\
                       2026-11-30T15:04:07.000000002Z stderr P:x o\n\
                       2026-11-30T15:04:08.000000001+01:00 stderr F !\n\
                       garbage\n\
                       2026-11-30T15:04:09Z stdin F no such stream\n\
                       2026-11-30T15:04:10Z stdout F \n\
                       2026-11-30T15:04:11Z stdout F  a b \n";

    /// The same whatever the pieces that the file comes in.
    fn show(log: &[u8], query: &LogQuery) -> Result<String, Unsupported> {
        let mut first = None;
        for piece in [1, 2, 7, 64, log.len().max(1)] {
            let mut lines = Lines::new(query);
            let (mut input, mut out) = (Vec::new(), Vec::new());
            let mut pieces = log.chunks(piece).peekable();
            while let Some(bytes) = pieces.next() {
                input.extend_from_slice(bytes);
                let read = lines.read(&input, pieces.peek().is_none(), &mut out)?;
                input.drain(..read);
            }
            let out = String::from_utf8(out).unwrap();
            assert_eq!(first.get_or_insert(out.clone()), &out, "pieces of {piece}");
        }
        Ok(first.unwrap_or_default())
    }

    #[test]
    fn lines_of_the_runtime() {
        let query = LogQuery::default;
        let check = |query: LogQuery, want: &str| {
            assert_eq!(show(LOG.as_bytes(), &query).unwrap(), want, "{query:?}");
        };
        check(query(), "one\ntwo!\n\n a b \n");
        let stamped = "2026-11-30T15:04:05.100000000Z one\n\
                       2026-11-30T15:04:06.000000000Z two!\n\
                       2026-11-30T15:04:10.000000000Z \n\
                       2026-11-30T15:04:11.000000000Z  a b \n";
        check(LogQuery { timestamps: true, ..query() }, stamped);
        let since = parse_ns("2026-11-30T15:04:10Z");
        check(LogQuery { since, ..query() }, "\n a b \n");
        check(LogQuery { limit_bytes: Some(6), ..query() }, "one\ntw");
        check(LogQuery { limit_bytes: Some(4), timestamps: true, ..query() }, "2026");
        check(LogQuery { tail_lines: Some(2), ..query() }, "one\ntw");
        check(LogQuery { tail_lines: Some(0), ..query() }, "");
        let follow = true;
        check(LogQuery { tail_lines: Some(2), follow, ..query() }, "one\ntwo!\n\n a b \n");
    }

    #[test]
    fn lines_of_docker() {
        let log = "{\"log\":\"a\\n\",\"stream\":\"stdout\",\"time\":\"2026-11-30T15:04:05.5Z\"}\n\
                   {\"log\":\"\\u00e4\",\"stream\":\"stderr\",\"time\":\"2026-11-30T15:04:06Z\"}\n\
                   nonsense\n\
                   {\"log\":\"c\\n\",\"stream\":\"stderr\",\"time\":\"2026-11-30T15:04:07Z\"}\n";
        let check = |query: LogQuery, want: &str| {
            assert_eq!(show(log.as_bytes(), &query).unwrap(), want, "{query:?}");
        };
        check(LogQuery::default(), "a\näc\n");
        let stamped = "2026-11-30T15:04:05.500000000Z a\n2026-11-30T15:04:06.000000000Z äc\n";
        check(LogQuery { timestamps: true, ..LogQuery::default() }, stamped);
        let since = parse_ns("2026-11-30T15:04:07Z");
        check(LogQuery { since, ..LogQuery::default() }, "c\n");
    }

    #[test]
    fn ends_without_a_line_break_and_other_files() {
        let check = |log: &str, want: Result<&str, &str>| {
            let got = show(log.as_bytes(), &LogQuery::default());
            assert_eq!(got, want.map(str::to_owned).map_err(|e| Unsupported(e.into())), "{log:?}");
        };
        check("", Ok(""));
        check("2026-11-30T15:04:05Z stdout F cut of", Ok("cut of"));
        check("2026-11-30T15:04:05Z stdout P cut of", Ok("cut of"));
        check("2026-11-30T15:04:05Z stdout F one\n2026-11-30T15:0", Ok("one\n"));
        check("some text\n", Err("some text\n"));
        check("\n", Err("\n"));
        check("{}\n", Err("{}\n"));
        check("2026-11-30T15:04:05Z stdout", Err("2026-11-30T15:04:05Z stdout"));
    }

    #[test]
    fn a_line_without_end_is_passed_on_as_it_comes() {
        let mut lines = Lines::new(&LogQuery::default());
        let mut out = Vec::new();
        let head = b"2026-11-30T15:04:05Z stdout F ";
        assert_eq!(lines.read(head, false, &mut out), Ok(head.len()));
        for _ in 0..100 {
            out.clear();
            assert_eq!(lines.read(&[b'x'; 16_384], false, &mut out), Ok(16_384));
            assert_eq!(out.len(), 16_384);
        }
        // A line that is not understood is not kept either.
        assert_eq!(lines.read(b"\n", false, &mut out), Ok(1));
        out.clear();
        assert_eq!(lines.read(&[b'y'; 255], false, &mut out), Ok(0));
        assert_eq!(lines.read(&[b'y'; 256], false, &mut out), Ok(256));
        assert_eq!(lines.read(b"yy\n2026-11-30T15:04:05Z stdout F z\n", false, &mut out), Ok(35));
        assert_eq!(out, b"z\n");
    }
}
