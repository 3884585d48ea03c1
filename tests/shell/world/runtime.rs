//! A container runtime on a unix socket, as far as a client can tell: h2 on a thread of its own.

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use http::{HeaderMap, Request, Response};
use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What the runtime does with a call.
pub enum Answer {
    Message(Bytes),
    /// gRPC code and message.
    Status(u32, &'static str),
    /// Never answers.
    Hang,
    /// Ends the connection in the midst of it.
    HangUp,
}

type Handler = dyn Fn(&str, &[u8]) -> Answer + Send + Sync;

pub struct Runtime {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// The paths of all calls so far.
    pub calls: Arc<Mutex<Vec<String>>>,
    /// Streams that the client took back.
    pub resets: Arc<AtomicUsize>,
    pub connections: Arc<AtomicUsize>,
}

impl Runtime {
    pub fn start(
        socket: &Path,
        handler: impl Fn(&str, &[u8]) -> Answer + Send + Sync + 'static,
    ) -> Runtime {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).expect("the socket is free");
        listener.set_nonblocking(true).expect("it can");
        let stop = Arc::new(AtomicBool::new(false));
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (resets, connections) = (Arc::default(), Arc::<AtomicUsize>::default());
        let shared = Shared {
            handler: Arc::new(handler),
            calls: Arc::clone(&calls),
            resets: Arc::clone(&resets),
            stop: Arc::clone(&stop),
        };
        let count = Arc::clone(&connections);
        let thread = std::thread::spawn(move || {
            let mut open: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
            let mut cx = Context::from_waker(Waker::noop());
            while !shared.stop.load(Ordering::Relaxed) {
                if let Ok((stream, _)) = listener.accept() {
                    count.fetch_add(1, Ordering::Relaxed);
                    stream.set_nonblocking(true).expect("it can");
                    open.push(Box::pin(serve(stream, shared.clone())));
                }
                open.retain_mut(|connection| connection.as_mut().poll(&mut cx).is_pending());
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Runtime { stop, thread: Some(thread), calls, resets, connections }
    }

    /// Ends it as a crash would: all connections close.
    pub fn kill(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the runtime's thread is well");
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct Shared {
    handler: Arc<Handler>,
    calls: Arc<Mutex<Vec<String>>>,
    resets: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

async fn serve(stream: UnixStream, shared: Shared) {
    let Ok(mut connection) = h2::server::handshake(Socket(stream)).await else { return };
    let mut open: Vec<Pin<Box<dyn Future<Output = bool>>>> = Vec::new();
    std::future::poll_fn(|cx| turn(&mut connection, &mut open, &shared, cx)).await;
}

fn turn(
    connection: &mut Connection<Socket, Bytes>,
    open: &mut Vec<Pin<Box<dyn Future<Output = bool>>>>,
    shared: &Shared,
    cx: &mut Context<'_>,
) -> Poll<()> {
    loop {
        match connection.poll_accept(cx) {
            Poll::Ready(Some(Ok((request, respond)))) => {
                open.push(Box::pin(answer(request, respond, shared.clone())));
            }
            Poll::Ready(_) => return Poll::Ready(()),
            Poll::Pending => break,
        }
    }
    let mut hang_up = false;
    open.retain_mut(|call| match call.as_mut().poll(cx) {
        Poll::Ready(ends_all) => {
            hang_up |= ends_all;
            false
        }
        Poll::Pending => true,
    });
    if hang_up { Poll::Ready(()) } else { Poll::Pending }
}

/// Whether the connection shall end.
async fn answer(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    shared: Shared,
) -> bool {
    let (head, mut body) = request.into_parts();
    let mut message = Vec::new();
    while let Some(Ok(part)) = body.data().await {
        let _ = body.flow_control().release_capacity(part.len());
        message.extend_from_slice(&part);
    }
    let path = head.uri.path().to_owned();
    shared.calls.lock().expect("not poisoned").push(path.clone());
    let mut status = ("0".to_owned(), "");
    let mut reply = None;
    match (shared.handler)(&path, message.get(5..).unwrap_or_default()) {
        Answer::Message(body) => reply = Some(body),
        Answer::Status(code, text) => status = (code.to_string(), text),
        Answer::HangUp => return true,
        Answer::Hang => {
            let reset = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
            shared.resets.fetch_add(usize::from(reset.is_ok()), Ordering::Relaxed);
            return false;
        }
    }
    let head = Response::builder().header("content-type", "application/grpc");
    let Ok(mut stream) = respond.send_response(head.body(()).expect("a head"), false) else {
        return false;
    };
    if let Some(body) = reply {
        let mut framed = vec![0];
        framed.extend_from_slice(&(body.len() as u32).to_be_bytes());
        framed.extend_from_slice(&body);
        let mut left = Bytes::from(framed);
        while !left.is_empty() {
            stream.reserve_capacity(left.len());
            let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
                return false;
            };
            let _ = stream.send_data(left.split_to(room.min(left.len())), false);
        }
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.0.parse().expect("a number"));
    trailers.insert("grpc-message", status.1.parse().expect("plain text"));
    let _ = stream.send_trailers(trailers);
    false
}

/// A socket that is asked again and again instead of being waited for.
struct Socket(UnixStream);

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let space = buffer.initialize_unfilled();
        let n = ready!(again(self.0.read(space)))?;
        buffer.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        again(self.0.write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.shutdown(std::net::Shutdown::Write))
    }
}

fn again(result: io::Result<usize>) -> Poll<io::Result<usize>> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
        other => Poll::Ready(other),
    }
}
