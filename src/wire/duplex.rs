//! An in-memory byte stream with two ends: [`Near`] is held by the caller who owns the socket,
//! [`Far`] is given to h2, which wants `AsyncRead` and `AsyncWrite`.
//!
//! No waker is kept here. The caller polls h2 after every change of the near end, so that there is
//! nobody to wake.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::outbox::{OUTPUT_MAX, release_if_idle};

/// The caller should stop reading its socket while this much is unread.
const INPUT_MAX: usize = 64 * 1024;

#[derive(Default)]
struct Shared {
    input: BytesMut,
    input_ended: bool,
    output: BytesMut,
}

/// The end beside the socket.
pub(crate) struct Near {
    shared: Rc<RefCell<Shared>>,
    /// Bytes on their way out. Apart from `shared` so that a plain slice can be lent; refilled by a
    /// swap.
    sending: BytesMut,
}

/// The end beside h2.
pub(crate) struct Far(Rc<RefCell<Shared>>);

pub(crate) fn duplex() -> (Near, Far) {
    let shared = Rc::new(RefCell::new(Shared::default()));
    (Near { shared: shared.clone(), sending: BytesMut::new() }, Far(shared))
}

impl Near {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.shared.borrow_mut().input.extend_from_slice(bytes);
    }

    /// The peer sends no more. What h2 still writes is dropped: an HTTP/2 peer that has closed its
    /// side is gone, and h2 must not wait for room that nobody makes.
    pub(crate) fn feed_eof(&mut self) {
        let mut shared = self.shared.borrow_mut();
        shared.input_ended = true;
        shared.output.clear();
        self.sending.clear();
    }

    pub(crate) fn wants_input(&self) -> bool {
        let shared = self.shared.borrow();
        !shared.input_ended && shared.input.len() < INPUT_MAX
    }

    pub(crate) fn output(&mut self) -> &[u8] {
        if self.sending.is_empty() {
            let mut shared = self.shared.borrow_mut();
            if !shared.output.is_empty() {
                std::mem::swap(&mut self.sending, &mut shared.output);
            }
        }
        &self.sending
    }

    pub(crate) fn consume_output(&mut self, n: usize) {
        self.sending.advance(n);
        release_if_idle(&mut self.sending);
    }
}

impl AsyncRead for Far {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut shared = self.0.borrow_mut();
        if shared.input.is_empty() {
            return if shared.input_ended { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let n = shared.input.len().min(into.remaining());
        into.put_slice(&shared.input[..n]);
        shared.input.advance(n);
        release_if_idle(&mut shared.input);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Far {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut shared = self.0.borrow_mut();
        if shared.input_ended {
            return Poll::Ready(Ok(bytes.len()));
        }
        let n = bytes.len().min(OUTPUT_MAX.saturating_sub(shared.output.len()));
        if n == 0 && !bytes.is_empty() {
            return Poll::Pending;
        }
        shared.output.extend_from_slice(&bytes[..n]);
        Poll::Ready(Ok(n))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut shared = self.0.borrow_mut();
        let wanted: usize = slices.iter().map(|s| s.len()).sum();
        if shared.input_ended {
            return Poll::Ready(Ok(wanted));
        }
        let mut room = OUTPUT_MAX.saturating_sub(shared.output.len());
        if room == 0 && wanted > 0 {
            return Poll::Pending;
        }
        let before = shared.output.len();
        for slice in slices {
            let n = slice.len().min(room);
            shared.output.extend_from_slice(&slice[..n]);
            room -= n;
        }
        Poll::Ready(Ok(shared.output.len() - before))
    }

    /// Vectored writes spare h2 a copy of every payload into its own frame buffer.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A waker that only remembers that it was called: poll again while it is set.
pub(crate) struct Flag {
    raised: Arc<Raised>,
    pub(crate) waker: Waker,
}

struct Raised(AtomicBool);

impl Wake for Raised {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Flag {
    pub(crate) fn new() -> Flag {
        let raised = Arc::new(Raised(AtomicBool::new(false)));
        Flag { waker: Waker::from(raised.clone()), raised }
    }

    /// Was the waker called since the last question?
    pub(crate) fn take(&self) -> bool {
        self.raised.0.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_bounded_and_vectored_writes_keep_their_order() {
        let (mut near, mut far) = duplex();
        let flag = Flag::new();
        let mut cx = Context::from_waker(&flag.waker);
        let (a, b) = (vec![1u8; OUTPUT_MAX - 2], vec![2u8; 10]);
        let slices = [io::IoSlice::new(&a), io::IoSlice::new(&b)];
        let wrote = Pin::new(&mut far).poll_write_vectored(&mut cx, &slices);
        assert!(matches!(wrote, Poll::Ready(Ok(n)) if n == OUTPUT_MAX));
        assert!(Pin::new(&mut far).poll_write(&mut cx, b"x").is_pending());
        assert_eq!(near.output()[OUTPUT_MAX - 3..], [1, 2, 2]);
        near.consume_output(OUTPUT_MAX);
        assert!(Pin::new(&mut far).poll_write(&mut cx, b"x").is_ready());
        assert_eq!(near.output(), b"x");
    }

    #[test]
    fn writes_after_the_end_never_wait() {
        let (mut near, mut far) = duplex();
        let flag = Flag::new();
        let mut cx = Context::from_waker(&flag.waker);
        let full = vec![0u8; OUTPUT_MAX];
        assert!(Pin::new(&mut far).poll_write(&mut cx, &full).is_ready());
        near.feed_eof();
        assert!(Pin::new(&mut far).poll_write(&mut cx, &full).is_ready());
        assert!(near.output().is_empty());
        assert!(!near.wants_input());
    }
}
