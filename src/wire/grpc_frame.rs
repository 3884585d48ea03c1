//! gRPC message framing: one byte of flags, four bytes of length, the message.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::grpc_status::{Code, GrpcStatus};

/// Most bytes in one message, in either direction; what kubelet allows a runtime to answer.
pub const MESSAGE_MAX: usize = 16 * 1024 * 1024;

const PREFIX: usize = 5;
/// A message's length is its sender's word: this much is allocated on it, the rest as bytes arrive.
const TRUSTED_LENGTH: usize = 128 * 1024;

/// Puts the prefix before a message.
///
/// The caller keeps messages within [`MESSAGE_MAX`]; a longer one is a bug.
pub(crate) fn encode(message: &[u8]) -> Bytes {
    assert!(message.len() <= MESSAGE_MAX, "message of {} bytes", message.len());
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.put_slice(message);
    framed.freeze()
}

/// Cuts messages out of a stream of DATA.
#[derive(Default)]
pub(crate) struct Deframer {
    prefix: [u8; PREFIX],
    prefix_have: usize,
    body: BytesMut,
    body_want: usize,
}

impl Deframer {
    /// Takes bytes from the front of `data` until a message is whole (then call again) or `data` is
    /// empty.
    ///
    /// Errors: `ResourceExhausted` for a message over [`MESSAGE_MAX`]; `Internal` for a compressed
    /// one, since no compression was offered.
    pub(crate) fn take(&mut self, data: &mut Bytes) -> Result<Option<Bytes>, GrpcStatus> {
        if self.prefix_have < PREFIX {
            let n = data.len().min(PREFIX - self.prefix_have);
            data.copy_to_slice(&mut self.prefix[self.prefix_have..self.prefix_have + n]);
            self.prefix_have += n;
            if self.prefix_have < PREFIX {
                return Ok(None);
            }
            self.start()?;
        }
        let n = data.len().min(self.body_want - self.body.len());
        self.body.extend_from_slice(&data[..n]);
        data.advance(n);
        if self.body.len() < self.body_want {
            return Ok(None);
        }
        self.prefix_have = 0;
        Ok(Some(std::mem::take(&mut self.body).freeze()))
    }

    /// True between messages.
    pub(crate) fn is_empty(&self) -> bool {
        self.prefix_have == 0
    }

    fn start(&mut self) -> Result<(), GrpcStatus> {
        let [flags, a, b, c, d] = self.prefix;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if flags != 0 {
            let text = "compressed message, though no compression was offered";
            return Err(GrpcStatus::new(Code::Internal, text));
        }
        if length > MESSAGE_MAX {
            let text = format!("received message larger than max ({length} vs. {MESSAGE_MAX})");
            return Err(GrpcStatus::new(Code::ResourceExhausted, text));
        }
        self.body_want = length;
        self.body = BytesMut::with_capacity(length.min(TRUSTED_LENGTH));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_every_cut() {
        let mut stream = encode(b"one").to_vec();
        stream.extend_from_slice(&encode(b""));
        stream.extend_from_slice(&encode(b"three"));
        for cut in 0..=stream.len() {
            let mut deframer = Deframer::default();
            let mut seen = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                let mut data = Bytes::copy_from_slice(part);
                while let Some(message) = deframer.take(&mut data).expect("well framed") {
                    seen.push(message);
                }
                assert!(data.is_empty());
            }
            assert_eq!(seen, ["one", "", "three"], "cut at {cut}");
            assert!(deframer.is_empty());
        }
    }

    #[test]
    fn bad_prefixes_are_refused() {
        let check = |prefix: [u8; 5], want: Option<Code>| {
            let taken = Deframer::default().take(&mut Bytes::copy_from_slice(&prefix));
            assert_eq!(taken.err().map(|s| s.code), want, "{prefix:?}");
        };
        check([0, 1, 0, 0, 0], None);
        check([0, 1, 0, 0, 1], Some(Code::ResourceExhausted));
        check([0, 255, 255, 255, 255], Some(Code::ResourceExhausted));
        check([1, 0, 0, 0, 1], Some(Code::Internal));
        check([128, 0, 0, 0, 1], Some(Code::Internal));
    }

    #[test]
    fn a_claimed_length_is_not_allocated() {
        let mut deframer = Deframer::default();
        let claim = [&[0][..], &(MESSAGE_MAX as u32).to_be_bytes()].concat();
        assert_eq!(deframer.take(&mut Bytes::from(claim)), Ok(None));
        assert!(deframer.body.capacity() <= 2 * TRUSTED_LENGTH);
    }
}
