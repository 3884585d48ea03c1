//! The listeners on the real loop, with a core of a few lines behind them: honest clients, slow ones, hostile ones.

use crate::visitors::{body, get, get_all, plain, tls};
use crate::world::{Scratch, World};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use steplet::shell::clock;
use steplet::shell::doors::Outside;
use steplet::shell::doors::listen::{Listeners, Tls};
use steplet_core::effect::{Effect, LogQuery, Reply};
use steplet_core::event::{Event, Listener, Request};
use steplet_core::ids::RequestId;
use steplet_core::time::Span;
use steplet_wire::tls::TlsSettings;

/// The doors, and what answers behind them.
pub struct Site {
    pub world: World,
    pub asked: Vec<Request>,
    /// Requests that were not answered yet, or not in full, and have lost their clients.
    gone: BTreeSet<RequestId>,
    follows: Vec<RequestId>,
}

pub const SECURE: usize = 0;
pub const READ_ONLY: usize = 1;
pub const HEALTHZ: usize = 2;

impl Site {
    pub fn new() -> Site {
        let scratch = Scratch::new("listen");
        let pki = scratch.path().join("pki");
        let secure = Tls {
            settings: TlsSettings::new(&[""; 0], "", &[]).expect("no wishes"),
            certificate: pki.join("kubelet.crt"),
            key: pki.join("kubelet.key"),
            self_signed: Some("node-a".into()),
            issued: false,
            client_ca: None,
        };
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listeners = Listeners(vec![
            (Listener::Secure, any, Some(secure)),
            (Listener::ReadOnly, any, None),
            (Listener::Healthz, any, None),
        ]);
        let socket = scratch.path().join("none.sock");
        let world = World::with(scratch, Outside { listeners, ..Outside::of(socket) });
        let mut site =
            Site { world, asked: Vec::new(), gone: BTreeSet::new(), follows: Vec::new() };
        site.until(|site| site.world.doors.addresses().len() == 3);
        site
    }

    pub fn address(&self, listener: usize) -> SocketAddr {
        self.world.doors.addresses()[listener]
    }

    fn log(&self) -> PathBuf {
        self.world.dir().join("0.log")
    }

    pub fn turn(&mut self) {
        self.world.turn(Duration::from_millis(5));
        while let Some(event) = self.world.doors.take() {
            match event {
                Event::Request(request) => {
                    self.answer(&request);
                    self.asked.push(*request);
                }
                Event::Gone { request } => assert!(self.gone.insert(request), "gone twice"),
                other => panic!("{other:?}"),
            }
        }
    }

    fn answer(&mut self, request: &Request) {
        let number = || request.path.rsplit('/').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let has = |key: &str| request.query.iter().any(|(k, _)| k == key);
        let text = |status, body: Vec<u8>| Effect::Reply {
            request: request.id,
            reply: Reply { status, content_type: "text/plain".into(), body: body.into() },
        };
        let effect = match request.path.as_str() {
            "/never" => return,
            "/log" => {
                let path = self.log().to_str().expect("UTF-8").to_owned();
                let (follow, timestamps) = (has("follow"), has("timestamps"));
                if follow {
                    self.follows.push(request.id);
                }
                let log = LogQuery { path, follow, timestamps, ..LogQuery::default() };
                Effect::SendLog { request: request.id, log: log.into() }
            }
            "/body" => text(200, request.body.to_vec()),
            "/file" => {
                let path = request.query.first().map_or_else(String::new, |(key, _)| key.clone());
                let root = self.world.dir().to_str().expect("UTF-8").to_owned().into();
                Effect::SendFile { request: request.id, root, path }
            }
            "/stream" => {
                let url = request.query.iter().find(|(key, _)| key == "url");
                let url = url.map_or_else(String::new, |(_, url)| url.clone());
                Effect::Stream { request: request.id, url }
            }
            "/rss" => text(200, resident_bytes().to_string().into()),
            path if path.starts_with("/bytes/") => text(200, vec![b'x'; number()]),
            _ => text(200, b"ok".into()),
        };
        self.world.doors.carry_out(effect, clock::mono());
    }

    fn end_log(&mut self, request: RequestId) {
        self.world.doors.carry_out(Effect::EndLog { request }, clock::mono());
    }

    pub fn until(&mut self, done: impl Fn(&Site) -> bool) {
        let started = Instant::now();
        while !done(self) {
            assert!(started.elapsed() < Duration::from_secs(30), "it takes too long");
            self.turn();
        }
    }

    /// Serves while the client runs, and gives what it returns.
    pub fn serve<T: Send + 'static>(&mut self, client: impl FnOnce() -> T + Send + 'static) -> T {
        let client = std::thread::spawn(client);
        while !client.is_finished() {
            self.turn();
        }
        client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

pub fn write_log(path: &PathBuf, lines: std::ops::Range<usize>) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("it opens");
    let text: String = lines.map(|n| format!("2026-11-30T15:04:05Z stdout F line {n}\n")).collect();
    file.write_all(text.as_bytes()).expect("it is written");
}

fn lines(range: std::ops::Range<usize>) -> String {
    range.map(|n| format!("line {n}\n")).collect()
}

#[test]
fn every_port_answers_in_its_protocol() {
    let mut site = Site::new();
    let (secure, read_only) = (site.address(SECURE), site.address(READ_ONLY));
    let healthz = site.address(HEALTHZ);
    site.serve(move || {
        for answer in [
            get(plain(healthz), "/healthz"),
            get(plain(read_only), "/a%20b?x=%2B+&y&x=2"),
            get(tls(secure, "http/1.1"), "/pods"),
        ] {
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert!(answer.contains("\r\ndate: ") && answer.contains("GMT\r\n"), "{answer}");
            assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
        }
        let big = format!("200 {}", "x".repeat(3_000_000));
        let many = get_all(
            tls(secure, "h2"),
            &["/", "/bytes/3000000", "/pods", "/bytes/3000000"],
            Duration::ZERO,
        );
        assert_eq!(many, ["200 ok", &big, "200 ok", &big]);
        let forgot = get(plain(secure), "/pods");
        assert!(forgot.ends_with("Client sent an HTTP request to an HTTPS server.\n"), "{forgot}");
        assert!(get(plain(read_only), "/%zz").starts_with("HTTP/1.1 400 Bad Request\r\n"));
    });
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let asked = &site.asked[1];
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("GET", "/a b"));
    assert_eq!(asked.query, [pair("x", "+ "), pair("y", ""), pair("x", "2")]);
    assert_eq!((asked.listener, asked.loopback), (Listener::ReadOnly, true));
    assert_eq!(site.asked[0].listener, Listener::Healthz);
    assert_eq!(site.asked[2].listener, Listener::Secure);
    assert!(site.gone.is_empty());
    // Whoever waits for nothing costs nothing.
    let turns = site.world.turns;
    assert_eq!(site.world.events_for(Duration::from_millis(300)), []);
    assert!(site.world.turns - turns < 10, "the loop is busy without reason");
}

#[test]
fn the_body_of_a_put_comes_with_it() {
    let mut site = Site::new();
    let address = site.address(SECURE);
    site.serve(move || {
        let put = |parts: &[&str]| {
            let mut stream = tls(address, "http/1.1");
            for part in parts {
                stream.write_all(part.as_bytes()).expect("it is taken");
                std::thread::sleep(Duration::from_millis(20));
            }
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("it ends well");
            answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
        };
        let head = "PUT /body HTTP/1.1\r\nHost: node\r\nConnection: close\r\n";
        assert_eq!(put(&[&format!("{head}Content-Length: 1\r\n\r\n4")]), "4");
        let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
        assert_eq!(put(&[&chunked, "2\r\n1", "2\r\n1\r\n3\r\n0\r\n\r\n"]), "123");
        assert_eq!(put(&[&format!("{head}\r\n")]), "");
        // More than a verbosity needs is cut off.
        let long = format!("{head}Content-Length: 3000\r\n\r\n{}", "5".repeat(3000));
        assert_eq!(put(&[&long]), "5".repeat(1024));
    });
    assert!(site.asked.iter().all(|request| request.method == "PUT"));
}

#[test]
fn files_are_sent_as_they_are() {
    let mut site = Site::new();
    let address = site.address(SECURE);
    let bytes: Vec<u8> = (0..200_000_u32).map(|n| (n % 256) as u8).collect();
    fs::write(site.world.dir().join("binary"), &bytes).expect("written");
    fs::write(site.world.dir().join("text"), "one\ntwo\n").expect("written");
    std::os::unix::fs::symlink("/etc", site.world.dir().join("etc")).expect("linked");
    site.serve(move || {
        let mut stream = tls(address, "http/1.1");
        let request = b"GET /file?binary HTTP/1.0\r\nHost: node\r\n\r\n";
        stream.write_all(request).expect("it is written");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it ends well");
        assert!(answer.ends_with(&bytes), "{} bytes", answer.len());
        let text = get(tls(address, "http/1.1"), "/file?text");
        assert!(text.contains("content-type: text/plain; charset=utf-8\r\n"), "{text}");
        assert_eq!(body(&text), "one\ntwo\n");
        let names = get(tls(address, "http/1.1"), "/file?");
        assert!(names.contains("<a href=\"text\">text</a>\n"), "{names}");
        let check = |path: &str, status: &str| {
            let answer = get(tls(address, "http/1.1"), &format!("/file?{path}"));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        };
        check("nothing", "404");
        check("etc/passwd", "403");
    });
    assert!(site.gone.is_empty());
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let mut site = Site::new();
    let address = site.address(READ_ONLY);
    let answers = site.serve(move || {
        let mut stream = plain(address);
        let ask = |n: usize| format!("GET /bytes/{n} HTTP/1.1\r\nHost: node\r\n\r\n");
        let all: String = (1..=200).map(ask).collect();
        stream.write_all(all.as_bytes()).expect("it is written");
        stream.shutdown(Shutdown::Write).expect("it can");
        let mut answers = String::new();
        stream.read_to_string(&mut answers).expect("text");
        answers
    });
    let sizes = answers.lines().filter_map(|l| l.strip_prefix("Content-Length: "));
    let sizes: Vec<usize> = sizes.map(|n| n.parse().expect("a number")).collect();
    assert_eq!(sizes, (1..=200).collect::<Vec<_>>());
}

#[test]
fn large_heads_pass_and_larger_ones_are_told_so() {
    let mut site = Site::new();
    let (address, secure) = (site.address(READ_ONLY), site.address(SECURE));
    site.serve(move || {
        let padded = |bytes: usize| format!("/?{}", "a=b&".repeat(bytes / 4));
        // A target that long is not for the core.
        assert!(get(plain(address), &padded(100_000)).starts_with("HTTP/1.1 400 "));
        let head = |bytes: usize| {
            let padding = "x: y\r\n".repeat(bytes / 6);
            format!("GET / HTTP/1.1\r\nHost: node\r\nConnection: close\r\n{padding}\r\n")
        };
        let ask = |mut stream: Box<dyn ReadWrite>, bytes| {
            let mut answer = String::new();
            // The answer comes whole, although much of what was sent is never read.
            stream.write_all(head(bytes).as_bytes()).expect("it is written");
            stream.read_to_string(&mut answer).expect("no reset");
            answer
        };
        for bytes in [1_050_000, 1_500_000] {
            let answer = ask(Box::new(plain(address)), bytes);
            assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
            let answer = ask(Box::new(tls(secure, "http/1.1")), bytes);
            assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
        }
    });
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

#[test]
fn junk_hurts_nobody() {
    let mut site = Site::new();
    let (address, secure) = (site.address(READ_ONLY), site.address(SECURE));
    site.serve(move || {
        let mut seed = 1_u64;
        for round in 0..40 {
            let mut junk = Vec::new();
            for _ in 0..round * 50 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                junk.push((seed >> 56) as u8);
            }
            junk.extend_from_slice(b"\r\n\r\n");
            for address in [address, secure] {
                let mut stream = plain(address);
                let _ = stream.write_all(&junk);
                let _ = stream.shutdown(Shutdown::Write);
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer);
                assert!(!answer.starts_with(b"HTTP/1.1 2"));
            }
        }
        // Cut handshakes, closed in the midst of it.
        for n in [0, 1, 5, 6] {
            let mut stream = plain(secure);
            stream.write_all(&[22, 3, 1, 2, 0, 1][..n]).expect("it is written");
        }
        assert!(get(plain(address), "/").ends_with("ok"));
        assert!(get(tls(secure, "http/1.1"), "/").ends_with("ok"));
    });
}

#[test]
fn those_who_say_nothing_are_let_go_in_time() {
    let mut site = Site::new();
    let (address, secure) = (site.address(READ_ONLY), site.address(SECURE));
    let half = |address: SocketAddr, bytes: &[u8]| {
        let mut stream = plain(address);
        stream.write_all(bytes).expect("it is written");
        stream.set_nonblocking(true).expect("it can");
        stream
    };
    let mut kept = half(address, b"GET / HTTP/1.1\r\nHost: node\r\n\r\n");
    let mut waits = half(address, b"GET /never HTTP/1.1\r\nHost: node\r\n\r\n");
    let mut others = [
        half(address, b""),
        half(address, b"GET / HTTP/1.1\r\nHost: no"),
        half(secure, b""),
        half(secure, &[22, 3, 1]),
    ];
    site.until(|site| site.asked.len() == 2);
    let mut buffer = [0; 1000];
    site.until(|_| kept.peek(&mut [0]).is_ok());
    let _ = kept.read(&mut buffer).expect("the answer");
    let is_open = |stream: &mut TcpStream| {
        let mut buffer = [0; 10];
        stream.read(&mut buffer).is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
    };
    let later = |site: &mut Site, seconds| {
        site.world.doors.tend(clock::mono() + Span::from_secs(seconds));
    };
    later(&mut site, 29);
    assert!(others.iter_mut().all(is_open) && is_open(&mut kept));
    later(&mut site, 31);
    assert!(!others.iter_mut().any(is_open) && is_open(&mut kept));
    later(&mut site, 91);
    assert!(!is_open(&mut kept) && is_open(&mut waits));
    later(&mut site, 4 * 3_600 + 1);
    assert!(!is_open(&mut waits));
    assert_eq!(site.world.doors.take(), Some(Event::Gone { request: site.asked[1].id }));
}

#[test]
fn a_log_is_followed_across_rotation_to_the_end_of_its_container() {
    let mut site = Site::new();
    let (address, log) = (site.address(SECURE), site.log());
    write_log(&log, 0..1000);
    let (said, heard) = mpsc::channel();
    let client = std::thread::spawn(move || {
        let mut stream = tls(address, "http/1.1");
        let request = b"GET /log?follow HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("it is written");
        let mut answer = String::new();
        let mut buffer = [0; 1000];
        loop {
            let n = stream.read(&mut buffer).expect("it goes on");
            answer.push_str(std::str::from_utf8(&buffer[..n]).expect("text"));
            for number in [999, 1999, 2999] {
                if answer.contains(&format!("line {number}\n")) {
                    let _ = said.send(number);
                }
            }
            if n == 0 {
                return answer;
            }
        }
    });
    let mut seen = BTreeSet::new();
    let mut wait_for = |site: &mut Site, number| {
        let started = Instant::now();
        while !seen.contains(&number) {
            assert!(started.elapsed() < Duration::from_secs(10), "line {number} does not come");
            site.turn();
            seen.extend(heard.try_iter());
        }
    };
    wait_for(&mut site, 999);
    fs::rename(&log, log.with_extension("log.20261130-150405")).expect("renamed");
    write_log(&log.with_extension("log.20261130-150405"), 1000..1500);
    write_log(&log, 1500..2000);
    wait_for(&mut site, 1999);
    write_log(&log, 2000..3000);
    wait_for(&mut site, 2999);
    write_log(&log, 3000..3001);
    let request = site.follows[0];
    site.end_log(request);
    let answer = site.serve(move || client.join().expect("a whole answer"));
    assert_eq!(body(&answer), lines(0..3001));
    assert!(site.gone.is_empty(), "the core has ended it itself");
}

#[test]
fn the_core_learns_of_clients_that_leave() {
    let mut site = Site::new();
    let (address, secure) = (site.address(READ_ONLY), site.address(SECURE));
    write_log(&site.log(), 0..10);
    site.serve(move || {
        let mut streams: Vec<Box<dyn ReadWrite + Send>> =
            vec![Box::new(plain(address)), Box::new(tls(secure, "http/1.1"))];
        for stream in &mut streams {
            let request = b"GET /log?follow HTTP/1.1\r\nHost: node\r\n\r\n";
            stream.write_all(request).expect("it is written");
            let mut seen = 0;
            while seen < 100 {
                seen += stream.read(&mut [0; 1000]).expect("it goes on");
            }
        }
        let mut waits = plain(address);
        waits.write_all(b"GET /never HTTP/1.1\r\nHost: node\r\n\r\n").expect("it is written");
        // Half a close: an answer may still come.
        let mut half = plain(address);
        half.write_all(b"GET /never HTTP/1.1\r\nHost: node\r\n\r\n").expect("it is written");
        half.shutdown(Shutdown::Write).expect("it can");
        std::thread::sleep(Duration::from_millis(50));
        streams
    });
    site.until(|site| site.gone.len() == 2);
    let follows: BTreeSet<_> = site.follows.iter().copied().collect();
    assert_eq!(site.gone, follows);
    // These are half closed, for all that can be known: the answer shows that they are gone.
    for request in site.asked.iter().filter(|r| r.path == "/never").map(|r| r.id) {
        let reply = Reply { status: 200, content_type: "text/plain".into(), body: "x".into() };
        site.world.doors.carry_out(Effect::Reply { request, reply }, clock::mono());
    }
    assert_eq!(site.world.events_for(Duration::from_millis(50)), []);
}

#[test]
fn twenty_slow_readers_get_all_and_hold_up_nobody() {
    let mut site = Site::new();
    let (address, secure) = (site.address(READ_ONLY), site.address(SECURE));
    write_log(&site.log(), 0..30_000);
    let slow = |mut stream: Box<dyn ReadWrite + Send>| {
        std::thread::spawn(move || {
            let request = b"GET /log HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
            stream.write_all(request).expect("it is written");
            let (mut answer, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
            loop {
                std::thread::sleep(Duration::from_millis(20));
                match stream.read(&mut buffer).expect("it goes on") {
                    0 => return body(&String::from_utf8(answer).expect("text")),
                    n => answer.extend_from_slice(&buffer[..n]),
                }
            }
        })
    };
    site.serve(move || {
        let mut readers = Vec::new();
        for _ in 0..8 {
            readers.push(slow(Box::new(plain(address))));
            readers.push(slow(Box::new(tls(secure, "http/1.1"))));
        }
        let many = std::thread::spawn(move || {
            get_all(tls(secure, "h2"), &["/log"; 8], Duration::from_millis(2))
        });
        let mut longest = Duration::ZERO;
        while !readers.iter().all(|r| r.is_finished()) {
            let started = Instant::now();
            assert!(get(plain(address), "/").ends_with("ok"));
            longest = longest.max(started.elapsed());
            std::thread::sleep(Duration::from_millis(10));
        }
        let want = lines(0..30_000);
        for reader in readers {
            assert!(reader.join().expect("a whole log") == want);
        }
        for answer in many.join().expect("whole logs") {
            assert!(answer.strip_prefix("200 ") == Some(&want));
        }
        assert!(longest < Duration::from_secs(1), "another client waited {longest:?}");
    });
    assert!(site.gone.is_empty());
}

/// The bytes of memory that this process has.
fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("/proc is there");
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
    pages.expect("statm(5)") * 4096
}

/// A site in a process of its own, for what is counted by process: memory and descriptors.
pub struct Server {
    process: Child,
    _stdin: ChildStdin,
    pub ports: Vec<SocketAddr>,
    pub dir: PathBuf,
}

impl Server {
    /// Starts this test again as the server. With `spare`, it can open so many descriptors more.
    pub fn start(test: &str, spare: Option<usize>) -> Server {
        if std::env::var("STEPLET_TEST_SERVER").is_ok_and(|name| name == test) {
            Server::serve(spare);
        }
        let mut process = Command::new(std::env::current_exe().expect("it runs"))
            .args([test, "--exact", "--nocapture"])
            .env("STEPLET_TEST_SERVER", test)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdin = process.stdin.take().expect("piped");
        let said = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut said = said.map_while(Result::ok);
        let ports = said.find_map(|line| Some(line.split_once("ports: ")?.1.to_owned()));
        let ports = ports.expect("it says its ports");
        let ports = ports.split(' ').map(|a| a.parse().expect("an address")).collect();
        let dir = said.next().expect("it says where it is").into();
        // Clients are many, too.
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("it has one");
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("up to the hard one is allowed");
        Server { process, _stdin: stdin, ports, dir }
    }

    fn serve(spare: Option<usize>) -> ! {
        let mut site = Site::new();
        println!("ports: {} {} {}", site.address(0), site.address(1), site.address(2));
        println!("{}", site.world.dir().display());
        if let Some(spare) = spare {
            let free = (0..).filter(|fd| !PathBuf::from(format!("/proc/self/fd/{fd}")).exists());
            let limit = free.take(spare).last().map_or(0, |fd: u64| fd + 1);
            let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("it has one");
            setrlimit(Resource::RLIMIT_NOFILE, limit, hard).expect("lower is allowed");
        }
        std::thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
        loop {
            site.turn();
        }
    }

    pub fn resident_bytes(&self) -> u64 {
        body(&get(plain(self.ports[HEALTHZ]), "/rss")).parse().expect("a number")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The server has not closed it, whatever else it has sent.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("it can");
    let open = match stream.peek(&mut [0]) {
        Ok(n) => n > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    };
    stream.set_nonblocking(false).expect("it can");
    open
}

#[test]
fn an_idle_connection_is_small() {
    let server = Server::start("listen::an_idle_connection_is_small", None);
    for protocol in ["http/1.1", "h2"] {
        // Once before, for what is only made once.
        drop(tls(server.ports[SECURE], protocol));
        let before = server.resident_bytes();
        let idle: Vec<_> = (0..200).map(|_| tls(server.ports[SECURE], protocol)).collect();
        let each = server.resident_bytes().saturating_sub(before) / 200;
        assert!(idle.iter().all(|stream| is_open(&stream.sock)));
        println!("an idle connection with TLS and {protocol}: {each} bytes");
        assert!(each < 40_000, "{each}");
    }
}

#[test]
fn thousands_of_connections_take_little_memory_and_leave_room_for_others() {
    let name = "listen::thousands_of_connections_take_little_memory_and_leave_room_for_others";
    let server = Server::start(name, None);
    let before = server.resident_bytes();
    let mut open = Vec::new();
    for n in 0..3_000 {
        // Half of a head, and half of a TLS record.
        let (address, begin) = match n % 2 {
            0 => (server.ports[SECURE], &[22, 3, 1, 0x40, 0, 1][..]),
            _ => (server.ports[READ_ONLY], &b"GET / HTTP/1.1\r\nx: "[..]),
        };
        let mut stream = plain(address);
        let _ = stream.write_all(begin);
        let _ = stream.write_all(&[b'x'; 8_000]);
        open.push(stream);
        if n % 500 == 0 {
            assert!(get(plain(server.ports[HEALTHZ]), "/healthz").ends_with("ok"));
        }
        // Whoever may open a thousand files holds some hundreds at once.
        if open.len() > 700 {
            open.remove(0);
        }
    }
    assert!(get(tls(server.ports[SECURE], "http/1.1"), "/pods").ends_with("ok"));
    let more = server.resident_bytes().saturating_sub(before);
    println!("thousands of connections: {more} bytes");
    assert!(more < 16 << 20, "{more}");
    let left = open.iter().filter(|stream| is_open(stream)).count();
    assert!((200..=320).contains(&left), "{left}");
}

#[test]
fn answers_that_nobody_takes_are_bounded() {
    let server = Server::start("listen::answers_that_nobody_takes_are_bounded", None);
    let before = server.resident_bytes();
    let ask = |mut stream: TcpStream| {
        let request = b"GET /bytes/8000000 HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("it is written");
        stream
    };
    let slow: Vec<_> = (0..60).map(|_| ask(plain(server.ports[READ_ONLY]))).collect();
    std::thread::sleep(Duration::from_millis(100));
    let more = server.resident_bytes().saturating_sub(before);
    println!("answers that nobody takes: {more} bytes");
    assert!(more < 32 << 20, "{more}");
    let mut counts = [0, 0];
    for mut stream in slow {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("a whole answer");
        match &answer[..12] {
            "HTTP/1.1 200" => {
                assert_eq!(body(&answer).len(), 8_000_000);
                counts[0] += 1;
            }
            "HTTP/1.1 503" => counts[1] += 1,
            other => panic!("{other}"),
        }
    }
    assert!(counts[0] >= 1 && counts[1] >= 40, "{counts:?}");
    assert!(get(plain(server.ports[READ_ONLY]), "/").ends_with("ok"));
}

#[test]
fn without_descriptors_the_idle_make_room() {
    let server = Server::start("listen::without_descriptors_the_idle_make_room", Some(4));
    let address = server.ports[READ_ONLY];
    let idle: Vec<_> = (0..20).map(|_| plain(address)).collect();
    assert!(get(plain(address), "/").ends_with("ok"));
    let busy: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = plain(address);
            stream.write_all(b"GET /never HTTP/1.1\r\nHost: node\r\n\r\n").expect("written");
            std::thread::sleep(Duration::from_millis(50));
            stream
        })
        .collect();
    let open = |streams: &[TcpStream]| streams.iter().filter(|s| is_open(s)).count();
    assert_eq!((open(&idle), open(&busy)), (0, 4));
    // Nobody can be spared: this one waits until there is a place.
    let mut waits = plain(address);
    waits.write_all(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n").expect("it is written");
    std::thread::sleep(Duration::from_millis(300));
    assert!(is_open(&waits));
    let spent = cpu_time(server.process.id());
    std::thread::sleep(Duration::from_millis(500));
    let spent = cpu_time(server.process.id()) - spent;
    assert!(spent < 10, "the server spins: {spent} ticks");
    // A broken connection is over at once.
    let first = busy.into_iter().next().expect("four");
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    nix::sys::socket::setsockopt(&first, nix::sys::socket::sockopt::Linger, &linger).expect("set");
    drop(first);
    let mut answer = [0; 12];
    waits.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200");
}

/// Ticks of the clock, a hundredth of a second each, that a process has run.
fn cpu_time(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("proc(5)").split(' ').collect();
    fields[12..14].iter().map(|n| n.parse::<u64>().expect("proc(5)")).sum()
}
