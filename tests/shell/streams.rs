//! Streams between clients and the runtime's streaming server, over real sockets: honest ends, ends that do not read,
//! ends that break. And heads that two servers would read differently.

use crate::listen::{HEALTHZ, READ_ONLY, SECURE, Server, Site, write_log};
use crate::visitors::{Tls, get, get_all, plain, statuses, tls};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use steplet::shell::clock;
use steplet_core::time::Span;

/// What a streaming server answers when all is well.
const UPGRADED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                        Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";

/// The runtime's streaming server: `serve` has each connection on a thread of its own, with the head of its request.
fn streaming(serve: impl Fn(String, TcpStream) + Send + Clone + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/exec/id", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, serve) = (stream.expect("a connection"), serve.clone());
            std::thread::spawn(move || {
                let head = head(&mut stream);
                serve(head, stream);
            });
        }
    });
    url
}

/// Sends this answer, and ends.
fn answering(answer: &'static str) -> String {
    streaming(move |_, mut stream| drop(stream.write_all(answer.as_bytes())))
}

/// Everything up to the empty line; bytes after it stay where they are.
fn head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(0) | Err(_) => break,
            Ok(_) => head.push(byte[0]),
        }
    }
    String::from_utf8(head).expect("text")
}

/// Asks for a stream; the head of the answer.
fn ask(stream: &mut (impl Read + Write), url: &str) -> String {
    let request = format!(
        "POST /stream?url={url} HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer x\r\n\
         Content-Length: 0\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it is written");
    head(stream)
}

/// An answer that is no upgrade, with its body.
fn refused(address: SocketAddr, url: &str) -> String {
    let mut stream = plain(address);
    let head = ask(&mut stream, url);
    let mut length = head.lines().filter_map(|line| line.strip_prefix("Content-Length: "));
    let length = length.next().expect("it has a length").parse().expect("a number");
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("the whole body");
    head + &String::from_utf8(body).expect("text")
}

#[test]
fn bytes_go_both_ways_until_an_end_is_said() {
    let (heard, heads) = mpsc::channel();
    let url = streaming(move |head, mut stream| {
        let _ = heard.send(head);
        let mut all = UPGRADED.as_bytes().to_vec();
        // The first bytes come with the head.
        all.extend_from_slice(b"hello ");
        stream.write_all(&all).expect("it is taken");
        let mut buffer = vec![0; 50_000];
        loop {
            match stream.read(&mut buffer).expect("it goes on") {
                0 => break,
                n => stream.write_all(&buffer[..n]).expect("it is taken"),
            }
        }
        stream.write_all(b"bye").expect("one end is still open");
    });
    let mut site = Site::new();
    let (address, secure) = (site.address(READ_ONLY), site.address(SECURE));
    site.serve(move || {
        let text: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let want = [&b"hello "[..], &text, b"bye"].concat();
        let mut stream = plain(address);
        let said = ask(&mut stream, &url);
        assert!(said.starts_with("HTTP/1.1 101 "), "{said}");
        assert!(said.contains("Upgrade: SPDY/3.1\r\n"), "{said}");
        let mut writer = stream.try_clone().expect("it can");
        let sent = text.clone();
        let writer = std::thread::spawn(move || {
            writer.write_all(&sent).expect("it is taken");
            writer.shutdown(Shutdown::Write).expect("it can");
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("it ends well");
        writer.join().expect("all is written");
        assert!(got == want, "{} bytes came of {}", got.len(), want.len());

        let mut stream = tls(secure, "http/1.1");
        assert!(ask(&mut stream, &url).starts_with("HTTP/1.1 101 "));
        let mut got = vec![0; 6];
        stream.read_exact(&mut got).expect("the first bytes");
        for part in text[..300_000].chunks(30_000) {
            stream.write_all(part).expect("it is taken");
            let mut back = vec![0; part.len()];
            stream.read_exact(&mut back).expect("it comes back");
            assert!(back == part);
        }
        // The client ends its half within TLS.
        stream.conn.send_close_notify();
        stream.flush().expect("it is written");
        got.clear();
        stream.read_to_end(&mut got).expect("it ends well");
        assert_eq!(got, b"bye");
    });
    let handed_on = heads.recv().expect("a head");
    assert!(handed_on.starts_with("POST /exec/id HTTP/1.1\r\nHost: 127.0.0.1:"), "{handed_on}");
    assert!(handed_on.contains("x-stream-protocol-version: v4.channel.k8s.io\r\n"), "{handed_on}");
    assert!(!handed_on.to_lowercase().contains("authorization"), "{handed_on}");
}

#[test]
fn an_end_of_one_side_is_told_to_the_other() {
    let (told, ends) = mpsc::channel();
    let url = streaming(move |_, mut stream| {
        stream.write_all(UPGRADED.as_bytes()).expect("it is taken");
        let mut word = [0; 4];
        let read = stream.read(&mut word).unwrap_or(0);
        if &word[..read] == b"stop" {
            // The program has ended.
            stream.write_all(b"over").expect("it is taken");
            return;
        }
        let _ = told.send(read);
    });
    let mut site = Site::new();
    let address = site.address(READ_ONLY);
    site.serve(move || {
        let mut stream = plain(address);
        ask(&mut stream, &url);
        stream.write_all(b"stop").expect("it is taken");
        let mut got = String::new();
        stream.read_to_string(&mut got).expect("it ends well");
        assert_eq!(got, "over");
        // A client that is gone at once.
        let mut stream = plain(address);
        ask(&mut stream, &url);
        drop(stream);
        let end = ends.recv_timeout(Duration::from_secs(10)).expect("the runtime hears of it");
        assert_eq!(end, 0);
    });
}

#[test]
fn what_the_streaming_server_does_wrong_is_told() {
    let mut site = Site::new();
    let address = site.address(READ_ONLY);
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        format!("http://{}/exec/x", listener.local_addr().expect("an address"))
    };
    let long = "HTTP/1.1 101 Switching\r\nX: ".to_owned() + &"x".repeat(100_000);
    let long: &'static str = long.leak();
    site.serve(move || {
        let check = |url: &str, status: &str, text: &str| {
            let answer = refused(address, url);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            assert!(answer.contains(text), "{answer}");
        };
        check(&nobody, "500", "the runtime's stream: ");
        check("https://127.0.0.1:1/x", "500", "only plain http is done here");
        check("http://runtime.example:1/x", "500", "it has no address");
        let answer = "HTTP/1.1 500 Oops\r\nContent-Length: 9\r\n\r\nno shell\n";
        check(&answering(answer), "500", "no shell");
        check(&answering("HTTP/1.1 404 No\r\n\r\nno such token"), "404", "no such token");
        // A redirect is not followed: it could lead anywhere.
        check(&answering("HTTP/1.1 302 No\r\nLocation: http://a/\r\n\r\n"), "500", "");
        check(&answering("HTTP/1.1 101 Swi"), "500", "no answer of HTTP");
        check(&answering(""), "500", "no answer of HTTP");
        check(&answering("SSH-2.0-OpenSSH\r\n\r\n"), "500", "no answer of HTTP");
        check(&answering(long), "500", "no answer of HTTP");
        // The rest is served.
        assert!(get(plain(address), "/").ends_with("ok"));
    });
}

#[test]
fn a_streaming_server_that_is_silent_is_not_waited_for_without_end() {
    let (_keep, kept) = mpsc::channel::<()>();
    let kept = std::sync::Arc::new(std::sync::Mutex::new(kept));
    let url = streaming(move |_, stream| {
        let _ = kept.lock().map(|kept| kept.recv());
        drop(stream);
    });
    let mut site = Site::new();
    let address = site.address(READ_ONLY);
    let client = std::thread::spawn(move || refused(address, &url));
    site.until(|site| site.asked.len() == 1);
    for _ in 0..20 {
        site.turn();
    }
    site.world.doors.tend(clock::mono() + Span::from_secs(29));
    assert!(!client.is_finished());
    site.world.doors.tend(clock::mono() + Span::from_secs(31));
    let answer = site.serve(move || client.join().expect("an answer"));
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    assert!(answer.ends_with("the runtime's stream: no answer within 30 s\n"), "{answer}");
}

#[test]
fn the_sixty_fifth_stream_is_one_too_many() {
    let url = streaming(|_, mut stream| {
        stream.write_all(UPGRADED.as_bytes()).expect("it is taken");
        let _ = stream.read(&mut [0]);
    });
    let mut site = Site::new();
    let address = site.address(SECURE);
    site.serve(move || {
        let mut open: Vec<_> = (0..64).map(|_| tls(address, "http/1.1")).collect();
        for stream in &mut open {
            assert!(ask(stream, &url).starts_with("HTTP/1.1 101 "));
        }
        let mut more = tls(address, "http/1.1");
        let refused = ask(&mut more, &url);
        assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
        assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
        drop(open.pop());
        let started = Instant::now();
        while !ask(&mut tls(address, "http/1.1"), &url).starts_with("HTTP/1.1 101 ") {
            assert!(started.elapsed() < Duration::from_secs(10), "no place becomes free");
        }
    });
}

#[test]
fn who_does_not_read_is_not_read_for() {
    let server = Server::start("streams::who_does_not_read_is_not_read_for", None);
    let talks = streaming(|_, mut stream| {
        let _ = stream.write_all(UPGRADED.as_bytes());
        while stream.write_all(&[b'x'; 10_000]).is_ok() {}
    });
    let is_deaf = streaming(|_, mut stream| {
        let _ = stream.write_all(UPGRADED.as_bytes());
        std::thread::sleep(Duration::from_secs(60));
    });
    for (name, port) in [("plain", READ_ONLY), ("TLS", SECURE)] {
        let before = server.resident_bytes();
        let address = server.ports[port];
        let mut kept: Vec<Tls> = Vec::new();
        let mut kept_plain: Vec<TcpStream> = Vec::new();
        for n in 0..60 {
            let url = if n % 2 == 0 { &talks } else { &is_deaf };
            if port == READ_ONLY {
                let mut stream = plain(address);
                assert!(ask(&mut stream, url).starts_with("HTTP/1.1 101 "));
                stream.set_nonblocking(true).expect("it can");
                while n % 2 == 1 && push(&mut stream) {}
                kept_plain.push(stream);
            } else {
                let mut stream = tls(address, "http/1.1");
                assert!(ask(&mut stream, url).starts_with("HTTP/1.1 101 "));
                stream.sock.set_nonblocking(true).expect("it can");
                while n % 2 == 1 && push(&mut stream) {}
                kept.push(stream);
            }
        }
        std::thread::sleep(Duration::from_millis(500));
        let each = server.resident_bytes().saturating_sub(before) / 60;
        println!("a stream that is stuck, {name}: {each} bytes");
        // Beside the streams: the connections themselves, as `an_idle_connection_is_small` has them.
        let own = if port == READ_ONLY { 8_192 } else { 40_000 };
        assert!(each < 32 * 1024 + own, "{name}: {each}");
        assert!(get(plain(server.ports[HEALTHZ]), "/healthz").ends_with("ok"));
        // A reset is noticed although nothing is read or written: there is room for the next sixty.
        let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        for stream in kept.iter().map(|stream| &stream.sock).chain(&kept_plain) {
            setsockopt(stream, sockopt::Linger, &linger).expect("set");
        }
        drop((kept, kept_plain));
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Sends until the other side takes no more for a while: false then.
fn push(stream: &mut impl Write) -> bool {
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(20) {
        match stream.write(&[b'x'; 10_000]) {
            Ok(_) => return true,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn over_http2_there_is_no_upgrade() {
    let mut site = Site::new();
    let address = site.address(SECURE);
    let answers = site.serve(move || {
        get_all(tls(address, "h2"), &["/stream?url=http://127.0.0.1:1/x", "/"], Duration::ZERO)
    });
    assert_eq!(answers, ["400 Upgrade request required\n", "200 ok"]);
    assert!(site.asked.iter().all(|request| !request.upgrade));
}

#[test]
fn heads_that_two_servers_would_read_differently_are_read_once() {
    let mut site = Site::new();
    let (address, secure) = (site.address(READ_ONLY), site.address(SECURE));
    site.serve(move || {
        let hidden = "GET /smuggled HTTP/1.1\r\nHost: node\r\n\r\n";
        let check = |lines: &str, body: &str, want: &str| {
            let text = format!("{}{body}", lines.replace('\n', "\r\n"));
            for encrypted in [false, true] {
                let mut answer = String::new();
                if encrypted {
                    let mut stream = tls(secure, "http/1.1");
                    stream.write_all(text.as_bytes()).expect("it is written");
                    stream.read_to_string(&mut answer).expect("it ends well");
                } else {
                    let mut stream = plain(address);
                    stream.write_all(text.as_bytes()).expect("it is written");
                    stream.read_to_string(&mut answer).expect("it ends well");
                }
                assert!(answer.starts_with(&format!("HTTP/1.1 {want} ")), "{lines:?}: {answer}");
                assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{lines:?}: {answer}");
            }
        };
        let post = "POST / HTTP/1.1\nHost: node\n";
        let both = format!("{post}Content-Length: 4\nTransfer-Encoding: chunked\n\n");
        check(&both, &format!("0\r\n\r\n{hidden}"), "400");
        let twice = format!("{post}Content-Length: 0\nContent-Length: {}\n\n", hidden.len());
        check(&twice, hidden, "400");
        let coded = format!("{post}Transfer-Encoding: gzip, chunked\n\n");
        check(&coded, &format!("0\r\n\r\n{hidden}"), "501");
        let spaced = format!("{post}Transfer-Encoding : chunked\n\n");
        check(&spaced, &format!("0\r\n\r\n{hidden}"), "400");
        check(&format!("{post}X: a\n Transfer-Encoding: chunked\n\n"), hidden, "400");
        check(&format!("{post}Content-Length: +0\n\n"), hidden, "400");
        check("GET / HTTP/1.1\nHost: node\nHost: other\n\n", hidden, "400");
        check("GET / HTTP/1.0\nTransfer-Encoding: chunked\n\n", hidden, "400");
        // A lone LF ends a line of a head, as for Go's server; within a chunked body it ends nothing.
        let lone = "GET / HTTP/1.1\u{b}Host: node\u{b}Connection: close\u{b}\u{b}";
        check("", &lone.replace('\u{b}', "\n"), "200");
    });
    assert!(site.asked.iter().all(|request| request.path == "/"), "{:?}", site.asked);
}

#[test]
fn a_head_that_trickles_in_has_no_more_time_than_others() {
    let mut site = Site::new();
    let address = site.address(READ_ONLY);
    let mut stream = plain(address);
    stream.set_nonblocking(true).expect("it can");
    stream.write_all(b"GET / HTTP/1.1\r\n").expect("it is written");
    let open = |stream: &mut TcpStream| {
        stream.read(&mut [0; 10]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    for seconds in 0..29 {
        stream.write_all(b"x: y\r\n").expect("it is taken");
        site.turn();
        site.world.doors.tend(clock::mono() + Span::from_secs(seconds));
        assert!(open(&mut stream), "after {seconds} s");
    }
    site.world.doors.tend(clock::mono() + Span::from_secs(31));
    assert!(!open(&mut stream));
    assert!(site.asked.is_empty());
}

#[test]
fn a_thousand_followed_logs_take_little_memory_and_leave_room_for_others() {
    let name = "streams::a_thousand_followed_logs_take_little_memory_and_leave_room_for_others";
    let server = Server::start(name, None);
    write_log(&server.dir.join("0.log"), 0..100);
    let before = server.resident_bytes();
    let secure = server.ports[SECURE];
    let (ready, all_ready) = mpsc::channel();
    let (_over, wait) = mpsc::channel::<()>();
    let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
    let clients: Vec<_> = (0..10)
        .map(|_| {
            let (ready, wait) = (ready.clone(), wait.clone());
            std::thread::spawn(move || {
                let stay = move || {
                    ready.send(()).expect("somebody counts");
                    let _ = wait.lock().map(|wait| wait.recv());
                };
                statuses(tls(secure, "h2"), "/log?follow", 100, stay).0
            })
        })
        .collect();
    for _ in 0..10 {
        all_ready.recv_timeout(Duration::from_secs(30)).expect("all are answered");
    }
    let started = Instant::now();
    assert!(get(plain(server.ports[HEALTHZ]), "/healthz").ends_with("ok"));
    assert!(get(tls(secure, "http/1.1"), "/pods").ends_with("ok"));
    let took = started.elapsed();
    let more = server.resident_bytes().saturating_sub(before);
    println!("a thousand logs asked for: {more} bytes; others are answered within {took:?}");
    drop(_over);
    let all = clients.into_iter().flat_map(|client| client.join().expect("it ends"));
    let mut counts = std::collections::BTreeMap::<u16, usize>::new();
    all.for_each(|status| *counts.entry(status).or_default() += 1);
    assert_eq!(counts, [(200, 128), (429, 872)].into(), "{counts:?}");
    assert!(more < 8 << 20, "{more}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}
