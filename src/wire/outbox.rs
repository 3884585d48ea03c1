//! Bytes that wait for the socket.

use bytes::{Buf, BytesMut};

/// Most bytes of bodies that wait; heads and ends of chunks may go a little beyond.
pub(crate) const OUTPUT_MAX: usize = 64 * 1024;
/// An empty buffer that has grown beyond this is given back.
const KEEP: usize = 16 * 1024;

#[derive(Default)]
pub(crate) struct Outbox(BytesMut);

impl Outbox {
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Bytes of a body that may be put now.
    pub(crate) fn room(&self) -> usize {
        OUTPUT_MAX.saturating_sub(self.0.len())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// `n` bytes from the front are written.
    pub(crate) fn consume(&mut self, n: usize) {
        self.0.advance(n);
        release_if_idle(&mut self.0);
    }
}

/// Gives a big buffer back as soon as it is empty, and keeps a small one.
pub(crate) fn release_if_idle(buffer: &mut BytesMut) {
    if buffer.is_empty() {
        if buffer.capacity() > KEEP {
            *buffer = BytesMut::new();
        } else {
            buffer.clear();
        }
    }
}
