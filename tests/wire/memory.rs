//! What the wire tests share: a byte stream in memory for h2's other side, and numbers that are the
//! same in each run.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Both directions between our side, which is fed by hand, and a peer that h2 drives.
#[derive(Default)]
pub struct Wires {
    pub to_peer: BytesMut,
    pub from_peer: BytesMut,
    /// All bytes that the peer ever sent.
    pub sent: Vec<u8>,
}

/// The peer's socket.
pub struct PeerSide(pub Rc<RefCell<Wires>>);

impl AsyncRead for PeerSide {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = &mut self.0.borrow_mut().to_peer;
        if bytes.is_empty() {
            return Poll::Pending;
        }
        let n = bytes.len().min(into.remaining());
        into.put_slice(&bytes.split_to(n));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PeerSide {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut wires = self.0.borrow_mut();
        wires.from_peer.extend_from_slice(bytes);
        wires.sent.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// splitmix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// Some bytes changed, cut off, taken out, put in or said twice.
    pub fn mutate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(8) {
            if bytes.is_empty() {
                break;
            }
            let at = self.below(bytes.len());
            match self.below(6) {
                0 => bytes[at] = self.below(256) as u8,
                1 => bytes[at] ^= 1 << self.below(8),
                2 => bytes.truncate(at + 1),
                3 => drop(bytes.remove(at)),
                4 => bytes.insert(at, self.below(256) as u8),
                _ => {
                    let end = (at + self.below(40)).min(bytes.len());
                    let again = bytes[at..end].to_vec();
                    bytes.splice(at..at, again);
                }
            }
        }
        bytes
    }
}
