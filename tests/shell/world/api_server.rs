//! An API server as far as a client can tell: h2 in TLS on a thread of its own, with the faults of networks.

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use http::{Request, Response};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const DAY: Duration = Duration::from_secs(86_400);

/// An authority of certificates.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    /// Good from yesterday, for `days` from now.
    pub fn issue(&self, name: &str, days: i32) -> Pair {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let now = SystemTime::now();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = (now - 10 * DAY).into();
        params.not_after = match days {
            0.. => (now + days.unsigned_abs() * DAY).into(),
            _ => (now - days.unsigned_abs() * DAY).into(),
        };
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

/// What the server does with a request.
pub enum Answer {
    Whole(u16, &'static [(&'static str, &'static str)], Bytes),
    /// These parts, and then no end.
    Parts(Vec<Bytes>),
    /// These parts, and the connection is gone.
    Cut(Vec<Bytes>),
    /// The whole answer, and no further requests on this connection.
    GoAway(Bytes),
    Hang,
}

impl Answer {
    pub fn ok(body: impl Into<Bytes>) -> Answer {
        Answer::Whole(200, &[], body.into())
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: http::HeaderMap,
    pub body: Vec<u8>,
    /// Which connection it came on, from 1.
    pub connection: usize,
    /// The certificate that the client showed.
    pub certificate: Vec<u8>,
}

impl Asked {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("plain text"))
    }
}

type Handler = dyn Fn(&Asked) -> Answer + Send + Sync;
type Task<T> = Pin<Box<dyn Future<Output = T>>>;

pub struct ApiServer {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub asked: Arc<Mutex<Vec<Asked>>>,
    pub connections: Arc<AtomicUsize>,
    /// Connections up to this one are neither read nor written any more.
    pub frozen: Arc<AtomicUsize>,
    /// Requests that the client took back.
    pub resets: Arc<AtomicUsize>,
}

impl ApiServer {
    /// On a port of its own, with the certificate and the protocols that it has.
    pub fn start(
        authority: &Authority,
        pair: &Pair,
        alpn: &[&str],
        handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> ApiServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        ApiServer::on(listener, authority, pair, alpn, handler)
    }

    pub fn on(
        listener: TcpListener,
        authority: &Authority,
        pair: &Pair,
        alpn: &[&str],
        handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> ApiServer {
        listener.set_nonblocking(true).expect("it can");
        let address = listener.local_addr().expect("it has one");
        let config = config(authority, pair, alpn);
        let stop = Arc::new(AtomicBool::new(false));
        let shared =
            Shared { handler: Arc::new(handler), asked: Arc::default(), resets: Arc::default() };
        let (connections, frozen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (asked, resets) = (Arc::clone(&shared.asked), Arc::clone(&shared.resets));
        let (ended, count, still) = (Arc::clone(&stop), connections.clone(), frozen.clone());
        let thread = std::thread::spawn(move || {
            let mut open: Vec<(usize, Task<()>)> = Vec::new();
            let mut cx = Context::from_waker(Waker::noop());
            while !ended.load(Ordering::Relaxed) {
                if let Ok((stream, _)) = listener.accept() {
                    let number = count.fetch_add(1, Ordering::Relaxed) + 1;
                    stream.set_nonblocking(true).expect("it can");
                    let session = ServerConnection::new(config.clone()).expect("a session");
                    let shown = Arc::default();
                    let socket = Socket(StreamOwned::new(session, stream), Arc::clone(&shown));
                    open.push((number, Box::pin(serve(socket, number, shown, shared.clone()))));
                }
                open.retain_mut(|(number, connection)| {
                    *number <= still.load(Ordering::Relaxed)
                        || connection.as_mut().poll(&mut cx).is_pending()
                });
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        ApiServer { address, stop, thread: Some(thread), asked, connections, frozen, resets }
    }

    /// Ends it as a crash would: all connections close.
    pub fn kill(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server's thread is well");
        }
    }

    pub fn last(&self) -> Asked {
        self.asked.lock().expect("not poisoned").last().expect("asked").clone()
    }

    /// From now on the connections that there are carry nothing, as when a middle box has lost them.
    pub fn freeze(&self) {
        self.frozen.store(self.connections.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn config(authority: &Authority, pair: &Pair, alpn: &[&str]) -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("PEM");
    roots.add(root).expect("a CA");
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let clients = clients.allow_unauthenticated().build().expect("a verifier");
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate], key)
        .expect("a pair");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config.into()
}

#[derive(Clone)]
struct Shared {
    handler: Arc<Handler>,
    asked: Arc<Mutex<Vec<Asked>>>,
    resets: Arc<AtomicUsize>,
}

async fn serve(socket: Socket, number: usize, shown: Shown, shared: Shared) {
    let Ok(mut connection) = h2::server::handshake(socket).await else { return };
    let mut open: Vec<Task<After>> = Vec::new();
    std::future::poll_fn(|cx| turn(&mut connection, &mut open, (number, &shown), &shared, cx))
        .await;
}

#[derive(PartialEq)]
enum After {
    GoOn,
    Leave,
    Break,
}

fn turn(
    connection: &mut Connection<Socket, Bytes>,
    open: &mut Vec<Task<After>>,
    who: (usize, &Shown),
    shared: &Shared,
    cx: &mut Context<'_>,
) -> Poll<()> {
    loop {
        match connection.poll_accept(cx) {
            Poll::Ready(Some(Ok((request, respond)))) => {
                let certificate = who.1.lock().expect("not poisoned").clone();
                let who = (who.0, certificate);
                open.push(Box::pin(answer(request, respond, who, shared.clone())));
            }
            Poll::Ready(_) => return Poll::Ready(()),
            Poll::Pending => break,
        }
    }
    let mut broken = false;
    let mut leaves = false;
    open.retain_mut(|call| match call.as_mut().poll(cx) {
        Poll::Ready(after) => {
            broken |= after == After::Break;
            leaves |= after == After::Leave;
            false
        }
        Poll::Pending => true,
    });
    if leaves {
        connection.graceful_shutdown();
    }
    if broken { Poll::Ready(()) } else { Poll::Pending }
}

async fn answer(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    (connection, certificate): (usize, Vec<u8>),
    shared: Shared,
) -> After {
    let (head, mut incoming) = request.into_parts();
    let mut body = Vec::new();
    while let Some(Ok(part)) = incoming.data().await {
        let _ = incoming.flow_control().release_capacity(part.len());
        body.extend_from_slice(&part);
    }
    let asked = Asked {
        method: head.method.to_string(),
        path: head.uri.path_and_query().map_or(String::new(), |path| path.to_string()),
        headers: head.headers,
        body,
        connection,
        certificate,
    };
    let what = (shared.handler)(&asked);
    shared.asked.lock().expect("not poisoned").push(asked);
    let (status, headers, parts, after) = match what {
        Answer::Whole(status, headers, body) => (status, headers, vec![body], Some(After::GoOn)),
        Answer::GoAway(body) => (200, &[][..], vec![body], Some(After::Leave)),
        Answer::Parts(parts) => (200, &[][..], parts, None),
        Answer::Cut(parts) => (200, &[][..], parts, Some(After::Break)),
        Answer::Hang => {
            let reset = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
            shared.resets.fetch_add(usize::from(reset.is_ok()), Ordering::Relaxed);
            return After::GoOn;
        }
    };
    let response = headers.iter().fold(Response::builder().status(status), |response, header| {
        response.header(header.0, header.1)
    });
    let Ok(mut stream) = respond.send_response(response.body(()).expect("a head"), false) else {
        return After::GoOn;
    };
    for mut left in parts {
        while !left.is_empty() {
            stream.reserve_capacity(left.len());
            let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
                return After::GoOn;
            };
            let _ = stream.send_data(left.split_to(room.min(left.len())), false);
        }
    }
    match after {
        None => {
            let reset = std::future::poll_fn(|cx| stream.poll_reset(cx)).await;
            shared.resets.fetch_add(usize::from(reset.is_ok()), Ordering::Relaxed);
            After::GoOn
        }
        Some(After::Break) => {
            // What was sent shall be on its way.
            for _ in 0..20 {
                let mut asked = false;
                std::future::poll_fn(|_| match std::mem::replace(&mut asked, true) {
                    false => Poll::Pending,
                    true => Poll::Ready(()),
                })
                .await;
            }
            After::Break
        }
        Some(after) => {
            let _ = stream.send_data(Bytes::new(), true);
            after
        }
    }
}

type Shown = Arc<Mutex<Vec<u8>>>;

/// A TLS socket that is asked again and again instead of being waited for, and the certificate at its other end.
struct Socket(StreamOwned<ServerConnection, TcpStream>, Shown);

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let space = buffer.initialize_unfilled();
        let n = ready!(again(self.0.read(space)))?;
        buffer.advance(n);
        if let Some([own, ..]) = self.0.conn.peer_certificates() {
            *self.1.lock().expect("not poisoned") = own.to_vec();
        }
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

    fn poll_flush(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        again(self.0.flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.sock.shutdown(std::net::Shutdown::Write))
    }
}

fn again<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
        other => Poll::Ready(other),
    }
}
