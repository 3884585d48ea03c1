//! The way of bytes to the API server: a TCP connection, and a proxy's tunnel in it where there is one.
//!
//! ```text
//!  connecting -> (TLS to the proxy ->) (CONNECT ->) through
//! ```

use super::server::Proxy;
use mio::net::TcpStream;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use steplet_wire::tls::TlsSession;

/// Bytes of a proxy's answer to CONNECT.
const HEAD_MAX: usize = 16 * 1024;

pub struct Pipe {
    socket: TcpStream,
    connected: bool,
    /// TLS to the proxy.
    outer: Option<TlsSession>,
    hello: Option<Hello>,
}

/// CONNECT, as long as it is not answered.
struct Hello {
    unsent: Vec<u8>,
    answer: Vec<u8>,
}

impl Pipe {
    /// Begins to connect. `to` is the authority behind the proxy, `outer` a session with the proxy itself.
    pub fn connect(
        address: SocketAddr,
        proxy: Option<&Proxy>,
        to: &str,
        user_agent: &str,
        outer: Option<TlsSession>,
    ) -> io::Result<Pipe> {
        let socket = TcpStream::connect(address)?;
        let hello = proxy.map(|proxy| {
            let mut head =
                format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\nUser-Agent: {user_agent}\r\n");
            if let Some(value) = &proxy.authorization {
                head.push_str(&format!("Proxy-Authorization: {}\r\n", value.expose()));
            }
            head.push_str("\r\n");
            Hello { unsent: head.into(), answer: Vec::new() }
        });
        Ok(Pipe { socket, connected: false, outer, hello })
    }

    pub fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Whether bytes for the API server can go.
    pub fn is_through(&self) -> bool {
        self.connected && self.hello.is_none()
    }

    /// Looks whether the connection is made. Errors: it is refused.
    pub fn look(&mut self) -> io::Result<()> {
        if self.connected {
            return Ok(());
        }
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        match self.socket.peer_addr() {
            Ok(_) => {
                self.connected = true;
                // What is written is written whole; an answer must not wait for an acknowledgement.
                self.socket.set_nodelay(true)
            }
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads once, and hands to `sink` what is from the API server. Returns the number of bytes read; 0 is the end.
    pub fn read(
        &mut self,
        buffer: &mut [u8],
        mut sink: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<usize> {
        let n = self.socket.read(buffer)?;
        let bytes = &buffer[..n];
        let mut result = Ok(());
        let hello = &mut self.hello;
        let mut inner = |bytes: &[u8]| {
            if result.is_ok() {
                result = through_hello(hello, bytes, &mut sink);
            }
        };
        match &mut self.outer {
            None => inner(bytes),
            Some(outer) => {
                let fed = outer.feed(bytes, inner);
                fed.map_err(|broken| io::Error::other(format!("the proxy: {}", broken.0)))?;
            }
        }
        result.map(|()| n)
    }

    /// Sends what the pipe itself has to say. Errors: `WouldBlock` when the socket is full.
    pub fn flush(&mut self) -> io::Result<()> {
        if !self.connected {
            return Ok(());
        }
        if let Some(hello) = &mut self.hello {
            while !hello.unsent.is_empty() {
                let n = match &mut self.outer {
                    None => self.socket.write(&hello.unsent)?,
                    Some(outer) => outer.write(&hello.unsent),
                };
                hello.unsent.drain(..n);
                if n == 0 {
                    break;
                }
            }
        }
        while let Some(outer) = self.outer.as_mut().filter(|outer| outer.wants_write()) {
            outer.write_to(&mut self.socket)?;
        }
        Ok(())
    }
}

/// For the API server.
impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_through() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let Some(outer) = &mut self.outer else { return self.socket.write(bytes) };
        while outer.wants_write() {
            outer.write_to(&mut self.socket)?;
        }
        match outer.write(bytes) {
            0 => Err(ErrorKind::WouldBlock.into()),
            n => Ok(n),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Pipe::flush(self)
    }
}

/// Takes the proxy's answer from the front of what comes.
fn through_hello(
    hello: &mut Option<Hello>,
    bytes: &[u8],
    sink: &mut impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let Some(waiting) = hello else { return sink(bytes) };
    waiting.answer.extend_from_slice(bytes);
    let Some(end) = waiting.answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        if waiting.answer.len() > HEAD_MAX {
            return Err(io::Error::other("the proxy's answer has no end"));
        }
        return Ok(());
    };
    let answer = std::mem::take(&mut waiting.answer);
    *hello = None;
    proxy_status(&answer[..end])?;
    // The API server does not speak first, but what is there is its.
    sink(&answer[end + 4..])
}

fn proxy_status(head: &[u8]) -> io::Result<()> {
    let head = String::from_utf8_lossy(head);
    let line = head.lines().next().unwrap_or_default();
    let mut words = line.splitn(3, ' ');
    let version = words.next().unwrap_or_default();
    let (status, why) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !version.starts_with("HTTP/1.") {
        return Err(io::Error::other("the proxy does not speak HTTP"));
    }
    match status {
        "200" => Ok(()),
        "407" => Err(io::Error::other(
            "the proxy wants other credentials (407); they stand in proxy-url, or in HTTPS_PROXY",
        )),
        _ => Err(io::Error::other(format!("the proxy does not connect us: {status} {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_proxies_in_all_pieces() {
        let check = |answer: &str, want: Result<&str, &str>| {
            for step in [1, 2, 7, 1000] {
                let mut hello = Some(Hello { unsent: Vec::new(), answer: Vec::new() });
                let (mut rest, mut result) = (Vec::new(), Ok(()));
                for piece in answer.as_bytes().chunks(step) {
                    let mut sink = |bytes: &[u8]| {
                        rest.extend_from_slice(bytes);
                        Ok(())
                    };
                    result = result.and(through_hello(&mut hello, piece, &mut sink));
                }
                let seen = result.map(|()| String::from_utf8(rest).expect("text"));
                let seen = seen.map_err(|error| error.to_string());
                match want {
                    Ok(want) => assert_eq!(seen.as_deref(), Ok(want)),
                    Err(want) => assert!(seen.unwrap_err().contains(want), "{answer}"),
                }
            }
        };
        check("HTTP/1.1 200 OK\r\n\r\n", Ok(""));
        check("HTTP/1.0 200 Connection established\r\nVia: x\r\n\r\n\x16\x03", Ok("\x16\x03"));
        check("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", Err("407"));
        check("HTTP/1.1 503 no\r\n\r\n", Err("503 no"));
        check("SSH-2.0-x\r\n\r\n", Err("does not speak HTTP"));
        check(&"x".repeat(HEAD_MAX + 1), Err("has no end"));
    }
}
