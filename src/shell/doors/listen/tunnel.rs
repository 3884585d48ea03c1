//! One stream between a client of ours and the runtime's streaming server: exec, attach, port-forward.
//!
//! ```text
//!  Dialing -> Asking (the client's own request, by another path) -> Open (bytes both ways, after 101)
//!                      |                                        \-> Refused (the answer as it is)
//!                      \-> Silent (nothing came in time)
//! ```
//! The protocol on top (SPDY or WebSocket) is the affair of the two ends. Each way holds at most one buffer: who does
//! not read is not read for.

use mio::net::TcpStream;
use mio::{Interest, Registry};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use steplet_core::time::{Mono, Span};
use steplet_wire::http_server::RequestHead;
use steplet_wire::http1::AnswerHead;

/// Bytes for the client that are held here; as many may be on their way through HTTP, and through TLS.
pub const BUFFER: usize = 8 * 1024;
/// With this much for the runtime no more is read from the client: a read of the same size may come on top.
const BACKLOG: usize = 4 * 1024;
/// An answer's head, and the text of one that is no upgrade.
const HEAD_MAX: usize = 64 * 1024;
/// From the dial to the answer.
const ANSWER_TIME: Span = Span::from_secs(30);
/// Not handed on: they are about the connection to us.
const OURS: [&str; 4] = ["host", "authorization", "content-length", "transfer-encoding"];

pub struct Tunnel {
    socket: TcpStream,
    state: State,
    /// For the runtime, and from it.
    out: Vec<u8>,
    input: Vec<u8>,
    readable: bool,
    writable: bool,
    /// The client sends no more; and the runtime has been told.
    client_ended: bool,
    told: bool,
    runtime_ended: bool,
    until: Mono,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Dialing,
    Asking,
    Open,
    Refused,
    Silent,
}

/// What the connection of the client is to do.
pub enum Word {
    /// Answer 101 with these headers; the bytes come after.
    Upgrade(Vec<(String, String)>),
    /// The whole answer instead.
    Refusal(u16, String),
    /// Bytes for the client wait in `input`.
    Bytes,
    /// Nothing for now.
    Wait,
    Over,
}

impl Tunnel {
    /// Dials the URL of a stream. Errors: why that cannot be done, for people.
    pub fn dial(url: &str, head: &RequestHead, now: Mono) -> Result<Tunnel, String> {
        let (address, path) = place(url)?;
        let socket = TcpStream::connect(address)
            .map_err(|error| format!("cannot reach the runtime's streams at {address}: {error}"))?;
        let _ = socket.set_nodelay(true);
        let mut out = format!("{} {path} HTTP/1.1\r\nHost: {address}\r\n", head.method);
        for (name, value) in head.headers.iter().filter(|(name, _)| !OURS.contains(&&**name)) {
            out.push_str(&format!("{name}: {value}\r\n"));
        }
        if head.method == "POST" {
            out.push_str("content-length: 0\r\n");
        }
        out.push_str("\r\n");
        Ok(Tunnel {
            socket,
            state: State::Dialing,
            out: out.into_bytes(),
            input: Vec::new(),
            readable: false,
            writable: false,
            client_ended: false,
            told: false,
            runtime_ended: false,
            until: now + ANSWER_TIME,
        })
    }

    pub fn register(&mut self, registry: &Registry, token: mio::Token) -> io::Result<()> {
        registry.register(&mut self.socket, token, Interest::READABLE | Interest::WRITABLE)
    }

    pub fn ready(&mut self, event: &mio::event::Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
    }

    /// When it is given up: never, once it is open.
    pub fn limit(&self) -> Mono {
        if self.state == State::Open { Mono(u64::MAX) } else { self.until }
    }

    /// False while enough waits for the runtime: leave the client's bytes where they are.
    pub fn wants_input(&self) -> bool {
        self.state != State::Open || self.out.len() < BACKLOG
    }

    /// Its time is up: the client is told so.
    pub fn give_up(&mut self) {
        self.state = State::Silent;
        self.until = Mono(u64::MAX);
    }

    /// Bytes from the client.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub fn client_ended(&mut self) {
        self.client_ended = true;
    }

    /// Bytes for the client.
    pub fn input(&self) -> &[u8] {
        &self.input
    }

    pub fn consume(&mut self, n: usize) {
        self.input.drain(..n);
        if self.input.is_empty() {
            // A shell that nobody types in holds no memory.
            self.input = Vec::new();
        }
    }

    /// Moves both ways on as far as they go.
    pub fn go_on(&mut self) -> Word {
        match self.turn() {
            Ok(word) => word,
            Err(error) if self.state == State::Open => {
                log::debug!("A stream breaks off: {error}");
                Word::Over
            }
            Err(error) => Word::Refusal(500, format!("the runtime's stream: {error}\n")),
        }
    }

    fn turn(&mut self) -> io::Result<Word> {
        if self.state == State::Dialing && self.writable {
            if let Some(error) = self.socket.take_error()? {
                return Err(error);
            }
            self.state = State::Asking;
        }
        self.write()?;
        self.read()?;
        match self.state {
            State::Dialing => Ok(Word::Wait),
            State::Asking => self.answer(),
            State::Refused => Ok(self.refusal()),
            State::Silent => {
                let why = format!("no answer within {} s", ANSWER_TIME.secs());
                Err(io::Error::new(ErrorKind::TimedOut, why))
            }
            State::Open if !self.input.is_empty() => Ok(Word::Bytes),
            State::Open if self.runtime_ended => Ok(Word::Over),
            State::Open => Ok(Word::Wait),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while self.state != State::Dialing && self.writable && !self.out.is_empty() {
            match self.socket.write(&self.out) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.out.drain(..n);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.out.is_empty() && self.out.capacity() > 0 {
            self.out = Vec::new();
        }
        if self.client_ended && self.out.is_empty() && !self.told && self.state == State::Open {
            self.told = true;
            let _ = self.socket.shutdown(std::net::Shutdown::Write);
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<()> {
        let most = if self.state == State::Open { BUFFER } else { HEAD_MAX };
        let mut buffer = [0; BUFFER];
        while self.readable && !self.runtime_ended && self.input.len() < most {
            let room = (most - self.input.len()).min(BUFFER);
            match self.socket.read(&mut buffer[..room]) {
                Ok(0) => self.runtime_ended = true,
                Ok(n) => self.input.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The head of the runtime's answer, once it is there.
    fn answer(&mut self) -> io::Result<Word> {
        let nonsense = || io::Error::new(ErrorKind::InvalidData, "no answer of HTTP");
        let parsed = AnswerHead::parse(&self.input).map_err(|_| nonsense())?;
        let Some(head) = parsed else {
            if self.runtime_ended || self.input.len() >= HEAD_MAX {
                return Err(nonsense());
            }
            return Ok(Word::Wait);
        };
        if head.status != 101 {
            self.state = State::Refused;
            return Ok(self.refusal());
        }
        self.input.drain(..head.length);
        self.state = State::Open;
        Ok(Word::Upgrade(head.headers))
    }

    /// The answer that is no upgrade, once all of it is there.
    fn refusal(&self) -> Word {
        let Ok(Some(head)) = AnswerHead::parse(&self.input) else { return Word::Wait };
        let body = &self.input[head.length..];
        let whole = head.content_length().is_some_and(|length| body.len() >= length);
        if !whole && !self.runtime_ended && self.input.len() < HEAD_MAX {
            return Word::Wait;
        }
        let status = if (400..600).contains(&head.status) { head.status } else { 500 };
        Word::Refusal(status, String::from_utf8_lossy(body).into_owned())
    }
}

/// Address and path of `http://host:port/path`. Another machine's, or one over TLS, is not dialed.
fn place(url: &str) -> Result<(SocketAddr, &str), String> {
    let bad = |why: &str| format!("the runtime gives {url:?} for a stream: {why}");
    let rest = url.strip_prefix("http://").ok_or_else(|| {
        bad("only plain http is done here; let the runtime serve its streams without TLS")
    })?;
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let address = authority.replacen("localhost:", "127.0.0.1:", 1);
    let mut address: SocketAddr = address.parse().map_err(|_| bad("it has no address"))?;
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let fit = path.bytes().all(|byte| byte.is_ascii_graphic());
    if !fit {
        return Err(bad("its path is none"));
    }
    Ok((address, if path.is_empty() { "/" } else { path }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_streams() {
        let check = |url: &str, want: Option<&str>| {
            let got = place(url).ok().map(|(address, path)| format!("{address} {path}"));
            assert_eq!(got.as_deref(), want, "{url}");
        };
        check("http://127.0.0.1:40001/exec/abc", Some("127.0.0.1:40001 /exec/abc"));
        check("http://[::1]:1/attach/x?y=z", Some("[::1]:1 /attach/x?y=z"));
        check("http://localhost:10010/exec/x", Some("127.0.0.1:10010 /exec/x"));
        check("http://0.0.0.0:10010", Some("127.0.0.1:10010 /"));
        check("https://127.0.0.1:1/exec", None);
        check("http://runtime.example:1/exec", None);
        check("http://127.0.0.1:1/a b\r\n", None);
        check("", None);
    }
}
