//! Clients of the listeners, which read and write as slowly as they like: each runs on a thread of its own.

use bytes::Bytes;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub type Tls = StreamOwned<ClientConnection, TcpStream>;

pub fn plain(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the port is open");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("it can");
    stream
}

/// A TLS connection that offers `protocol`, with its handshake done.
pub fn tls(address: SocketAddr, protocol: &str) -> Tls {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let mut config = builder
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from("node-a").expect("a name");
    let mut connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut stream = plain(address);
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).expect("a handshake");
    }
    assert_eq!(connection.alpn_protocol(), Some(protocol.as_bytes()));
    StreamOwned::new(connection, stream)
}

/// Sends a request on HTTP/1.1 that ends the connection, and reads the whole answer.
pub fn get(mut stream: impl Read + Write, target: &str) -> String {
    let request = format!("GET {target} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is written");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it ends well");
    String::from_utf8(answer).expect("text")
}

/// The body of an answer of HTTP/1.1, put together from its chunks; what is cut off fails.
pub fn body(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    if !head.contains("Transfer-Encoding: chunked") {
        return body.to_owned();
    }
    let (mut whole, mut rest) = (String::new(), body);
    loop {
        let (size, after) = rest.split_once("\r\n").expect("the size of a chunk");
        let size = usize::from_str_radix(size, 16).expect("a size");
        whole.push_str(&after[..size]);
        rest = after[size..].strip_prefix("\r\n").expect("the end of a chunk");
        if size == 0 {
            return whole;
        }
    }
}

/// Asks for all of them at once on one connection of HTTP/2, and answers `status body` for each. A part is taken,
/// and then there is a pause.
pub fn get_all(stream: Tls, targets: &[&str], pause: Duration) -> Vec<String> {
    stream.sock.set_nonblocking(true).expect("it can");
    let (mut requests, connection) =
        wait(h2::client::handshake(AsyncTls(stream))).expect("a preface");
    let mut connection = pin!(connection);
    let mut calls: Vec<_> = (targets.iter())
        .map(|target| {
            let request = http::Request::builder().uri(format!("https://node{target}"));
            let sent = requests.send_request(request.body(()).expect("valid"), true);
            Some(Box::pin(answer(sent.expect("a stream").0)))
        })
        .collect();
    let mut answers = vec![String::new(); targets.len()];
    let cx = &mut Context::from_waker(Waker::noop());
    while calls.iter().any(Option::is_some) {
        assert!(connection.as_mut().poll(cx).is_pending(), "the connection ended");
        for (call, answer) in calls.iter_mut().zip(&mut answers) {
            let polled = call.as_mut().map(|call| call.as_mut().poll(cx));
            if let Some(Poll::Ready(text)) = polled {
                (*call, *answer) = (None, text.expect("a whole answer"));
            }
        }
        std::thread::sleep(pause);
    }
    answers
}

/// Asks for the same so often on one connection of HTTP/2, and gives the status of each answer; while the answers are
/// still coming, `then` is done.
pub fn statuses<T>(
    stream: Tls,
    target: &str,
    times: usize,
    then: impl FnOnce() -> T,
) -> (Vec<u16>, T) {
    stream.sock.set_nonblocking(true).expect("it can");
    let (mut requests, connection) =
        wait(h2::client::handshake(AsyncTls(stream))).expect("a preface");
    let mut connection = pin!(connection);
    let cx = &mut Context::from_waker(Waker::noop());
    let mut calls: Vec<_> = (0..times)
        .map(|_| {
            while !requests.poll_ready(cx).is_ready() {
                assert!(connection.as_mut().poll(cx).is_pending(), "the connection ended");
            }
            let request = http::Request::builder().uri(format!("https://node{target}"));
            let sent = requests.send_request(request.body(()).expect("valid"), true);
            Box::pin(sent.expect("a stream").0)
        })
        .collect();
    let mut answers = Vec::new();
    while !calls.is_empty() {
        assert!(connection.as_mut().poll(cx).is_pending(), "the connection ended");
        calls.retain_mut(|call| match call.as_mut().poll(cx) {
            Poll::Ready(answer) => {
                answers.push(answer.expect("an answer"));
                false
            }
            Poll::Pending => true,
        });
        std::thread::sleep(Duration::from_millis(1));
    }
    let done = then();
    (answers.iter().map(|answer| answer.status().as_u16()).collect(), done)
}

async fn answer(response: h2::client::ResponseFuture) -> Result<String, h2::Error> {
    let (head, mut body) = response.await?.into_parts();
    let mut text = format!("{} ", head.status.as_u16()).into_bytes();
    while let Some(part) = body.data().await {
        let part: Bytes = part?;
        body.flow_control().release_capacity(part.len())?;
        text.extend_from_slice(&part);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let cx = &mut Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(cx) {
            return done;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A stream that is asked again and again instead of being waited for.
struct AsyncTls(Tls);

impl AsyncRead for AsyncTls {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let space = into.initialize_unfilled();
        match self.0.read(space) {
            Ok(n) => {
                into.advance(n);
                Poll::Ready(Ok(()))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for AsyncTls {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            other => Poll::Ready(other),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            other => Poll::Ready(other),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Trusts whoever has the key of the certificate it shows.
#[derive(Debug)]
struct AnyServer(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
