//! The way to the API server: proxies, credential plugins, servers that are silent, do not read, or never stop.

use crate::api::{Cluster, access, call, get, good, inline, reply, request, world};
use crate::world::Scratch;
use crate::world::api_server::{Answer, Authority, Pair};
use bytes::Bytes;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use steplet::shell::doors::api::{Address, Authorities, ExecPlugin, Login, Proxy};
use steplet_core::effect::{ApiCall, Call, Verb};
use steplet_core::event::{Event, Item};
use steplet_core::time::Span;

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A proxy that connects one client to where it wants, if it shows the password.
struct TestProxy {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TestProxy {
    fn start(tls: Option<Pair>) -> TestProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            let client: Box<dyn Stream> = match tls {
                None => Box::new(stream),
                Some(pair) => Box::new(StreamOwned::new(session(&pair), stream)),
            };
            relay(client, &ended);
        });
        TestProxy { port, stop, thread: Some(thread) }
    }
}

impl Drop for TestProxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join).expect("there is one").expect("it is well");
    }
}

fn session(pair: &Pair) -> ServerConnection {
    let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key);
    ServerConnection::new(config.unwrap().into()).unwrap()
}

fn relay(mut client: Box<dyn Stream>, ended: &AtomicBool) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        let mut byte = [0];
        match client.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            Ok(_) => return,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    let head = String::from_utf8(head).unwrap();
    let to = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(head.contains(&format!("\r\nHost: {to}\r\n")), "{head}");
    if !head.contains("\r\nProxy-Authorization: Basic bWU6cHc=\r\n") {
        return write(&mut client, b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
    }
    let mut server = TcpStream::connect(to).unwrap();
    server.set_nonblocking(true).unwrap();
    write(&mut client, b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n");
    while !ended.load(Ordering::Relaxed) {
        if !pass(&mut client, &mut server) || !pass(&mut server, &mut client) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn pass(from: &mut impl Read, to: &mut impl Write) -> bool {
    let mut buffer = [0; 16 * 1024];
    match from.read(&mut buffer) {
        Ok(0) => false,
        Ok(n) => {
            write(to, &buffer[..n]);
            true
        }
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

fn write(to: &mut impl Write, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => return,
        }
    }
    while to.flush().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {}
}

#[test]
fn proxies_are_asked_to_connect() {
    let cluster = Cluster::new(|asked| match asked.path.as_str() {
        "/large" => Answer::ok(vec![b'x'; 3_000_000]),
        _ => Answer::ok("{}"),
    });
    let through = |port: u16, tls: bool, password: &str| {
        let authorization = Some(password.to_owned().into());
        let address = Address { host: "127.0.0.1".into(), port };
        let proxy = Some(Proxy { address, tls, authorization });
        world(steplet::shell::doors::api::ApiServer { proxy, ..cluster.access.clone() })
    };
    for tls in [false, true] {
        let pair = cluster.authority.issue("127.0.0.1", 9);
        let proxy = TestProxy::start(tls.then_some(pair));
        let mut world = through(proxy.port, tls, "Basic bWU6cHc=");
        assert_eq!(get(&mut world, "/x"), good("{}"));
        assert_eq!(get(&mut world, "/large").unwrap().body.len(), 3_000_000);
    }
    let proxy = TestProxy::start(None);
    let why = get(&mut through(proxy.port, false, "Basic no"), "/x").unwrap_err();
    assert!(why.contains(&format!("the proxy 127.0.0.1:{}", proxy.port)), "{why}");
    assert!(why.contains("other credentials (407)"), "{why}");
    let pair = Authority::new().issue("127.0.0.1", 9);
    let stranger = TestProxy::start(Some(pair));
    let why = get(&mut through(stranger.port, true, "Basic bWU6cHc="), "/x").unwrap_err();
    assert!(why.contains(": the proxy: the server's certificate"), "{why}");
}

#[test]
fn a_plugin_is_asked_again_when_its_word_does_not_count_any_more() {
    let scratch = Scratch::new("api-plugin");
    let path = scratch.path().join("credential.json");
    let say = |token: &str| {
        let status = format!(r#"{{"kind":"ExecCredential","status":{{"token":"{token}"}}}}"#);
        std::fs::write(&path, status).unwrap();
    };
    let wanted = Arc::new(std::sync::Mutex::new("Bearer one"));
    let now_wanted = Arc::clone(&wanted);
    let mut cluster = Cluster::new(move |asked| {
        match asked.header("authorization") == *now_wanted.lock().unwrap() {
            true => Answer::ok("{}"),
            false => Answer::Whole(401, &[], Bytes::from_static(b"{}")),
        }
    });
    let plugin = ExecPlugin {
        command: "cat".into(),
        args: vec![path.to_str().unwrap().into()],
        env: Vec::new(),
        api_version: "client.authentication.k8s.io/v1".into(),
        cluster: None,
        install_hint: String::new(),
    };
    cluster.access.login = Login::Exec(Box::new(plugin));
    let mut world = cluster.world();
    let why = get(&mut world, "/x").unwrap_err();
    assert!(why.contains("cat: the credential plugin failed: exit status: 1"), "{why}");
    say("one");
    world.pass(Span::from_secs(2));
    assert_eq!(get(&mut world, "/x"), good("{}"));
    say("two");
    assert_eq!(get(&mut world, "/x"), good("{}"), "its word counts as long as the server says so");
    *wanted.lock().unwrap() = "Bearer two";
    assert_eq!(get(&mut world, "/x").unwrap().status, 401);
    assert_eq!(get(&mut world, "/x").unwrap().status, 401, "not asked again so soon");
    world.pass(Span::from_secs(31));
    assert_eq!(get(&mut world, "/x").unwrap().status, 401);
    assert_eq!(get(&mut world, "/x"), good("{}"));
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut world = world(access(&authority, listener.local_addr().unwrap().port()));
    let first = call(&mut world, Verb::Get, "/x");
    assert_eq!(world.events_for(Duration::from_millis(100)), []);
    world.pass(Span::from_secs(11));
    let why = reply(&mut world, first).unwrap_err();
    assert!(why.ends_with("it does not answer"), "{why}");
    // One whose time is over sooner says what was under way.
    world.pass(Span::from_secs(2));
    let short = ApiCall { within: Span::from_millis(100), ..request(Verb::Get, "/x") };
    let short = world.call(Call::Api(short));
    let why = reply(&mut world, short).unwrap_err();
    assert!(why.ends_with("within 0.100 s: it is being connected to"), "{why}");
}

#[test]
fn a_server_that_does_not_read_fills_no_memory_and_no_time() {
    let cluster = Cluster::new(|_| Answer::ok("{}"));
    let mut world = cluster.world();
    assert_eq!(get(&mut world, "/x"), good("{}"));
    cluster.server.freeze();
    let large = Bytes::from(vec![b'1'; 200_000]);
    let within = Span::from_millis(1500);
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let body = large.clone();
            world.call(Call::Api(ApiCall { body, within, ..request(Verb::Put, "/x") }))
        })
        .collect();
    world.turns = 0;
    assert_eq!(world.events_for(Duration::from_millis(500)), []);
    assert!(world.turns < 50, "{} turns while nothing can be done", world.turns);
    for _ in calls {
        assert!(matches!(world.event(), Event::Done { .. }));
    }
    assert_eq!(get(&mut world, "/x"), good("{}"), "on a new connection");
}

#[test]
fn a_watch_that_never_stops_waits_for_the_core() {
    const LINES: usize = 8 * 1024;
    let cluster = Cluster::new(|_| {
        let lines = (0..LINES).map(|n| format!("{n:01023}\n"));
        Answer::ok(lines.collect::<String>())
    });
    let mut world = cluster.world();
    let watch = call(&mut world, Verb::Watch, "/watch");
    for _ in 0..500 {
        world.turn(Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut next = 0;
    let waiting = std::iter::from_fn(|| world.doors.take()).count();
    assert!((1000..1500).contains(&waiting), "{waiting} lines wait");
    next += waiting;
    while next < LINES {
        let Event::Item { token, item: Item::Line(line) } = world.event() else { panic!("an end") };
        assert_eq!((token, line.len()), (watch, 1023));
        assert_eq!(String::from_utf8_lossy(&line).parse(), Ok(next));
        next += 1;
    }
    assert_eq!(reply(&mut world, watch), good(""));
}

#[test]
fn a_bundle_of_authorities_that_is_none_is_named() {
    let mut cluster = Cluster::new(|_| Answer::ok("{}"));
    cluster.access.authorities = Authorities::Given(inline("nonsense"));
    let why = get(&mut cluster.world(), "/x").unwrap_err();
    assert!(why.ends_with("CA: no certificate in it"), "{why}");
    cluster.access.authorities = Authorities::Everybody;
    assert_eq!(get(&mut cluster.world(), "/x"), good("{}"));
}
