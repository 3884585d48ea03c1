//! Frames in a file: how they are told apart, checked, and compressed. `proto/tape/v1/tape.proto` draws it.

use super::part::put_varint;
use super::proto::Frame;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use prost::Message;
use std::fmt;
use std::io::{self, Read, Write};

/// "sttape" and the version of the framing; one more byte says plain or compressed.
const MAGIC: &[u8; 7] = b"sttape\x01";
const PLAIN: u8 = b'p';
const COMPRESSED: u8 = b'z';
/// No frame is longer: a snapshot of a thousand pods is below 16 MiB, an answer of the runtime too.
const FRAME_BYTES_MAX: u64 = 64 << 20;
/// Text bytes of one compressed block: the unit that is lost when a byte of a compressed segment goes bad.
const BLOCK_BYTES: usize = 256 << 10;
/// Compressed bytes of one block: deflate adds little to what it cannot shrink.
const BLOCK_COMPRESSED_MAX: usize = BLOCK_BYTES + BLOCK_BYTES / 16;
const READ_BYTES: usize = 64 << 10;

/// Why a tape, or the rest of one, cannot be read.
#[derive(Debug)]
pub enum Bad {
    Io(io::Error),
    /// The file does not begin like a tape, or with a framing that this build does not know.
    NotATape,
    /// The bytes end inside a frame: what a killed process or a power cut leaves.
    Truncated,
    /// A checksum, a length or a message is wrong.
    Damaged(&'static str),
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bad::Io(error) => write!(f, "{error}"),
            Bad::NotATape => f.write_str("not a tape of a known format"),
            Bad::Truncated => f.write_str("the file ends inside a frame"),
            Bad::Damaged(what) => f.write_str(what),
        }
    }
}

impl From<io::Error> for Bad {
    fn from(error: io::Error) -> Bad {
        Bad::Io(error)
    }
}

/// The first bytes of a plain segment.
pub fn plain_head() -> [u8; 8] {
    head(PLAIN)
}

fn head(kind: u8) -> [u8; 8] {
    let mut head = [kind; 8];
    head[..7].copy_from_slice(MAGIC);
    head
}

/// Appends a frame in the plain form.
///
/// # Errors
/// When it is too large to be read again.
pub fn put_frame(out: &mut Vec<u8>, frame: &Frame) -> io::Result<()> {
    let bytes = frame.encode_to_vec();
    let length = bytes.len() as u64;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other(format!("a frame of {length} bytes is too large for a tape")));
    }
    put_varint(out, length);
    out.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    out.extend_from_slice(&bytes);
    Ok(())
}

/// The frames of a segment, one after the other.
pub struct Frames<R> {
    source: R,
    inflate: Option<Box<Decompress>>,
    /// Text that was read and is not yet given out begins at `at`.
    text: Vec<u8>,
    at: usize,
    /// Bytes of the file that whole frames, or for a compressed file whole blocks, took.
    good: u64,
    read: u64,
}

impl<R: Read> Frames<R> {
    /// Reads the first bytes of a segment.
    pub fn open(mut source: R) -> Result<Frames<R>, Bad> {
        let mut first = [0; 8];
        source.read_exact(&mut first).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Bad::NotATape,
            _ => Bad::Io(error),
        })?;
        let inflate = if first == head(PLAIN) {
            None
        } else if first == head(COMPRESSED) {
            Some(Box::new(Decompress::new(false)))
        } else {
            return Err(Bad::NotATape);
        };
        Ok(Frames { source, inflate, text: Vec::new(), at: 0, good: 8, read: 8 })
    }

    pub fn compressed(&self) -> bool {
        self.inflate.is_some()
    }

    /// How many bytes of the file were understood.
    pub fn good(&self) -> u64 {
        self.good
    }

    pub fn next_frame(&mut self) -> Result<Option<Frame>, Bad> {
        let Some(bytes) = self.next_bytes()? else { return Ok(None) };
        Frame::decode(bytes).map(Some).map_err(|_| Bad::Damaged("a frame is not a message"))
    }

    /// The bytes of the next frame; None at the end of the file.
    pub fn next_bytes(&mut self) -> Result<Option<&[u8]>, Bad> {
        let Some(length) = self.length()? else { return Ok(None) };
        let crc_bytes = if self.compressed() { 0 } else { 4 };
        while self.text.len() - self.at < crc_bytes + length {
            if !self.more()? {
                return Err(Bad::Truncated);
            }
        }
        let body = self.at + crc_bytes;
        let bytes = &self.text[body..body + length];
        if crc_bytes > 0 && self.text[self.at..body] != crc32fast::hash(bytes).to_le_bytes() {
            return Err(Bad::Damaged("a frame's checksum is wrong"));
        }
        self.at = body + length;
        if !self.compressed() {
            self.good = self.read - (self.text.len() - self.at) as u64;
        }
        Ok(Some(bytes))
    }

    /// The length of the next frame, a varint.
    fn length(&mut self) -> Result<Option<usize>, Bad> {
        let mut length = 0;
        for place in 0..5 {
            if self.at == self.text.len() && !self.more()? {
                return if place == 0 { Ok(None) } else { Err(Bad::Truncated) };
            }
            let byte = self.text[self.at];
            self.at += 1;
            length |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                let known = length <= FRAME_BYTES_MAX;
                let length = usize::try_from(length).ok().filter(|_| known);
                return length.map(Some).ok_or(Bad::Damaged("a frame's length is impossible"));
            }
        }
        Err(Bad::Damaged("a frame's length is impossible"))
    }

    /// Reads on; false at the end of the file.
    fn more(&mut self) -> Result<bool, Bad> {
        self.text.drain(..self.at);
        self.at = 0;
        if self.compressed() {
            return self.more_block();
        }
        let mut chunk = [0; READ_BYTES];
        let read = self.fill(&mut chunk)?;
        self.text.extend_from_slice(&chunk[..read]);
        Ok(read > 0)
    }

    fn more_block(&mut self) -> Result<bool, Bad> {
        let mut head = [0; 8];
        match self.fill(&mut head)? {
            0 => return Ok(false),
            8 => {}
            _ => return Err(Bad::Truncated),
        }
        let [a, b, c, d, crc @ ..] = head;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > BLOCK_COMPRESSED_MAX {
            return Err(Bad::Damaged("a block's length is impossible"));
        }
        let mut block = vec![0; length];
        if self.fill(&mut block)? < length {
            return Err(Bad::Truncated);
        }
        if crc32fast::hash(&block).to_le_bytes() != crc {
            return Err(Bad::Damaged("a block's checksum is wrong"));
        }
        let inflate = self.inflate.as_mut().expect("the segment is compressed");
        let before = inflate.total_in();
        self.text.reserve_exact(BLOCK_BYTES + 1);
        let most = self.text.len() + BLOCK_BYTES;
        let status = inflate.decompress_vec(&block, &mut self.text, FlushDecompress::Sync);
        let taken = inflate.total_in() - before;
        if !matches!(status, Ok(Status::Ok)) || taken != length as u64 || self.text.len() > most {
            return Err(Bad::Damaged("a block does not unpack"));
        }
        self.good = self.read;
        Ok(true)
    }

    /// Reads until `buffer` is full or the file ends.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.source.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.read += filled as u64;
        Ok(filled)
    }
}

/// Copies a plain segment into the compressed form; a frame that was begun at its end is left out.
///
/// # Errors
/// `NotATape` or `Damaged` when the segment is not sound: then it should stay as it is.
pub fn compress(from: impl Read, to: &mut impl Write) -> Result<(), Bad> {
    let mut frames = Frames::open(from)?;
    if frames.compressed() {
        return Err(Bad::Damaged("the segment is compressed already"));
    }
    to.write_all(&head(COMPRESSED))?;
    let mut deflate = Compress::new(Compression::best(), false);
    let mut text = Vec::new();
    loop {
        let bytes = match frames.next_bytes() {
            Ok(Some(bytes)) => bytes,
            Ok(None) | Err(Bad::Truncated) => break,
            Err(bad) => return Err(bad),
        };
        put_varint(&mut text, bytes.len() as u64);
        text.extend_from_slice(bytes);
        while text.len() >= BLOCK_BYTES {
            put_block(&mut deflate, &text[..BLOCK_BYTES], to)?;
            text.drain(..BLOCK_BYTES);
        }
    }
    put_block(&mut deflate, &text, to)?;
    Ok(())
}

fn put_block(deflate: &mut Compress, text: &[u8], to: &mut impl Write) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut block = Vec::with_capacity(BLOCK_COMPRESSED_MAX);
    let before = deflate.total_in();
    deflate
        .compress_vec(text, &mut block, FlushCompress::Sync)
        .map_err(|error| io::Error::other(error.to_string()))?;
    assert!(
        deflate.total_in() - before == text.len() as u64 && block.len() < block.capacity(),
        "deflate adds less than a sixteenth"
    );
    let length = u32::try_from(block.len()).expect("blocks are small");
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&crc32fast::hash(&block).to_le_bytes())?;
    to.write_all(&block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(frames: u64, snapshot_bytes: usize) -> Vec<u8> {
        let mut out = plain_head().to_vec();
        // Bytes that do not compress.
        let noise = (0..snapshot_bytes as u32).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 23) as u8);
        put_frame(&mut out, &Frame { snapshot: noise.collect(), ..Frame::default() }).unwrap();
        for stamp in 0..frames {
            put_frame(&mut out, &Frame { stamp, ..Frame::default() }).unwrap();
        }
        out
    }

    fn packed(plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        compress(plain, &mut out).unwrap();
        out
    }

    /// The frames that can be read, and why it ended.
    fn read(bytes: &[u8]) -> (Vec<Frame>, Option<Bad>) {
        let mut frames = match Frames::open(bytes) {
            Ok(frames) => frames,
            Err(bad) => return (vec![], Some(bad)),
        };
        let mut all = Vec::new();
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => all.push(frame),
                Ok(None) => return (all, None),
                Err(bad) => return (all, Some(bad)),
            }
        }
    }

    #[test]
    fn both_forms_give_the_same_frames() {
        for (frames, snapshot_bytes) in [(0, 0), (3, 10), (10_000, 3 * BLOCK_BYTES + 1)] {
            let plain = segment(frames, snapshot_bytes);
            let (wanted, bad) = read(&plain);
            assert!(bad.is_none() && wanted.len() as u64 == frames + 1);
            let (got, bad) = read(&packed(&plain));
            assert!(bad.is_none() && got == wanted, "{frames} {snapshot_bytes}");
        }
    }

    #[test]
    fn a_cut_at_any_byte_keeps_what_was_whole() {
        let plain = segment(9, 30);
        let (wanted, _) = read(&plain);
        for bytes in [&plain, &packed(&plain)] {
            for cut in 0..bytes.len() {
                let (got, bad) = read(&bytes[..cut]);
                assert_eq!(got, wanted[..got.len()], "cut at {cut}");
                let whole = got.len() < wanted.len();
                assert!(whole, "cut at {cut} lost nothing");
                assert!(matches!(bad, None | Some(Bad::Truncated | Bad::NotATape)), "{bad:?}");
            }
        }
    }

    #[test]
    fn a_wrong_byte_ends_the_reading() {
        let plain = segment(9, 30);
        let (wanted, _) = read(&plain);
        for bytes in [&plain, &packed(&plain)] {
            for at in 0..bytes.len() {
                let mut bytes = bytes.clone();
                bytes[at] ^= 0x41;
                let (got, bad) = read(&bytes);
                assert_eq!(got, wanted[..got.len()], "byte {at}");
                assert!(bad.is_some(), "byte {at} went unnoticed");
            }
        }
    }

    #[test]
    fn garbage_is_refused() {
        let endless = [&plain_head()[..], &[0xff; 100]].concat();
        let bomb = [&head(COMPRESSED)[..], &[0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0]].concat();
        for bytes in [&b""[..], b"sttape", b"#!/bin/sh\nexit", b"sttape\x02p12345", &endless, &bomb]
        {
            let (frames, bad) = read(bytes);
            assert!(frames.is_empty() && bad.is_some(), "{bytes:?}");
        }
    }
}
