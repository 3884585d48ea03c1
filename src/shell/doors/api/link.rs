//! One connection to the API server: a pipe, TLS in it, and HTTP/2 in that.

use super::pipe::Pipe;
use mio::{Interest, Registry, Token};
use std::io::{self, ErrorKind};
use steplet_core::time::Mono;
use steplet_wire::http2::client::{Event, Http2Client};
use steplet_wire::tls::TlsSession;

pub struct Link {
    token: Token,
    pipe: Pipe,
    tls: TlsSession,
    pub http: Http2Client,
    /// TLS has agreed on HTTP/2.
    open: bool,
    /// Why it is over.
    over: Option<String>,
    /// The socket may hold bytes that no event will announce again.
    readable: bool,
    /// The other end has closed: a short read is then not the last one.
    closed: bool,
    /// What the registry was asked for.
    interest: Interest,
    /// It has not been driven since it was given something.
    pub stale: bool,
    /// When it is given up unless it is open.
    pub open_by: Mono,
    /// Bytes that came, in all.
    pub read: u64,
    /// A request was answered: the server is well.
    pub answered: bool,
    /// A request that it carried has failed.
    pub lost: bool,
}

/// What a connection has to tell.
pub enum Said {
    /// Requests can go.
    Open,
    Http(Event),
    /// It is over, with the reason. All its requests have ended before.
    Over(String),
}

impl Link {
    /// Errors: no descriptor can be watched any more.
    pub fn new(
        registry: &Registry,
        token: Token,
        mut pipe: Pipe,
        tls: TlsSession,
        authority: &str,
        open_by: Mono,
    ) -> io::Result<Link> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(pipe.socket(), token, interest)?;
        Ok(Link {
            token,
            pipe,
            tls,
            http: Http2Client::new(authority),
            open: false,
            over: None,
            readable: false,
            closed: false,
            interest,
            stale: true,
            open_by,
            read: 0,
            answered: false,
            lost: false,
        })
    }

    pub fn is_open(&self) -> bool {
        self.open
    }

    pub fn is_connected(&self) -> bool {
        self.pipe.is_connected()
    }

    pub fn can_read(&self) -> bool {
        self.readable && self.over.is_none() && self.http.wants_input()
    }

    pub fn ready(&mut self, event: &mio::event::Event) {
        self.readable |= event.is_readable() || event.is_read_closed();
        self.closed |= event.is_read_closed();
        self.stale = true;
    }

    fn fail(&mut self, why: String) {
        self.over.get_or_insert(why);
        self.readable = false;
        self.http.feed_eof();
    }

    /// Lets everything go on, and writes out what there is until the socket takes no more.
    pub fn drive(&mut self, registry: &Registry) -> Vec<Said> {
        self.stale = false;
        let mut said = Vec::new();
        if let Err(error) = self.pipe.look() {
            self.fail(super::reason(&error));
        }
        if self.over.is_none() && !self.open && !self.tls.is_handshaking() {
            match self.tls.alpn() {
                Some(b"h2") => {
                    self.open = true;
                    said.push(Said::Open);
                }
                _ => self.fail("it does not speak HTTP/2 (ALPN), which this agent needs".into()),
            }
        }
        loop {
            let events = self.http.poll();
            self.lost |= events.iter().any(|e| matches!(e, Event::Failed { untouched: false, .. }));
            let over = &self.over;
            said.extend(events.into_iter().map(|event| told(event, over)));
            if self.over.is_some() {
                // The last words: an alert perhaps.
                let _ = self.write_out();
                return said;
            }
            let moved = self.open && self.encrypt();
            match self.write_out() {
                Ok(()) if moved => {}
                Ok(()) => {
                    self.want(registry, !self.pipe.is_connected());
                    return said;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // A proxy that has not answered yet is waited for by reading.
                    self.want(registry, !self.pipe.is_connected() || self.pipe.is_through());
                    return said;
                }
                Err(error) => self.fail(super::reason(&error)),
            }
        }
    }

    /// Moves what HTTP has to say into TLS. False if there was nothing.
    fn encrypt(&mut self) -> bool {
        let output = self.http.output();
        let n = if output.is_empty() { 0 } else { self.tls.write(output) };
        self.http.consume_output(n);
        n > 0
    }

    fn write_out(&mut self) -> io::Result<()> {
        loop {
            let result = match self.tls.wants_write() {
                true => self.pipe.flush().and_then(|()| self.tls.write_to(&mut self.pipe)),
                false => return self.pipe.flush(),
            };
            match result {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
    }

    /// Reads once. Returns the number of bytes.
    pub fn read(&mut self, buffer: &mut [u8]) -> usize {
        let Link { pipe, tls, http, .. } = self;
        let read = pipe.read(buffer, |bytes| {
            let fed = tls.feed(bytes, |plain| http.feed(plain));
            fed.map_err(|broken| io::Error::other(broken.0))
        });
        self.stale = true;
        match read {
            Ok(0) => {
                self.fail("it has closed the connection".into());
                0
            }
            Ok(n) => {
                self.read += n as u64;
                self.readable = n == buffer.len() || self.closed;
                if self.tls.is_ended() {
                    self.fail("it has closed the connection".into());
                }
                n
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                0
            }
            Err(error) => {
                self.fail(super::reason(&error));
                0
            }
        }
    }

    /// Writability is asked for only while it is waited for: each read of the peer would wake us.
    fn want(&mut self, registry: &Registry, writable: bool) {
        let interest = match writable {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        if self.interest == interest {
            return;
        }
        self.interest = interest;
        if let Err(error) = registry.reregister(self.pipe.socket(), self.token, interest) {
            self.fail(format!("its socket cannot be watched: {error}"));
            self.stale = true;
        }
    }
}

/// The reason that we know is better than the one that HTTP sees.
fn told(event: Event, over: &Option<String>) -> Said {
    match (event, over) {
        (Event::Failed { id, untouched, .. }, Some(why)) => {
            Said::Http(Event::Failed { id, why: why.clone(), untouched })
        }
        (Event::Closed(why), over) => Said::Over(over.clone().unwrap_or(why)),
        (event, _) => Said::Http(event),
    }
}
