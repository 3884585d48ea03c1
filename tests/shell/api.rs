//! The door to the API server on the real loop: answers, watches, secrets, and the faults of servers and networks.

use crate::world::api_server::{Answer, ApiServer, Asked, Authority};
use crate::world::{Scratch, World};
use bytes::Bytes;
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use steplet::shell::doors::Outside;
use steplet::shell::doors::api::{self, Address, Authorities, Login, Pem};
use steplet::shell::vault::Secret;
use steplet_core::effect::{ApiCall, Call, Lane, Verb};
use steplet_core::event::{ApiReply, Event, Item, Outcome};
use steplet_core::ids::Token;
use steplet_core::time::Span;

/// A server, the access to it, and what a test changes about either.
pub struct Cluster {
    pub authority: Authority,
    pub access: api::ApiServer,
    pub server: ApiServer,
}

pub fn inline(text: &str) -> Pem {
    Pem::Inline(Secret::from(text.to_owned()))
}

impl Cluster {
    pub fn new(handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Cluster {
        let authority = Authority::new();
        let pair = authority.issue("127.0.0.1", 9);
        let server = ApiServer::start(&authority, &pair, &["h2"], handler);
        let access = access(&authority, server.address.port());
        Cluster { authority, access, server }
    }

    pub fn world(&self) -> World {
        world(self.access.clone())
    }
}

pub fn access(authority: &Authority, port: u16) -> api::ApiServer {
    api::ApiServer {
        address: Address { host: "127.0.0.1".into(), port },
        prefix: String::new(),
        server_name: "127.0.0.1".into(),
        authorities: Authorities::Given(inline(&authority.pem)),
        identity: None,
        kept: None,
        login: Login::Header(api::bearer("s3cret")),
        proxy: None,
        user_agent: "steplet/test".into(),
    }
}

pub fn world(access: api::ApiServer) -> World {
    let scratch = Scratch::new("api");
    let socket = scratch.path().join("none.sock");
    World::with(scratch, Outside { api: Some(access), ..Outside::of(socket) })
}

pub fn request(verb: Verb, path: &str) -> ApiCall {
    let body = match verb {
        Verb::Post | Verb::Put | Verb::Patch => Bytes::from_static(b"{\"a\":1}"),
        Verb::Get | Verb::Watch | Verb::Delete => Bytes::new(),
    };
    let (lane, within) = (Lane::Main, Span::from_secs(15));
    ApiCall { verb, path: path.into(), body, within, lane, seals: false, secret: None }
}

pub fn call(world: &mut World, verb: Verb, path: &str) -> Token {
    world.call(Call::Api(request(verb, path)))
}

pub fn get(world: &mut World, path: &str) -> Result<ApiReply, String> {
    let token = call(world, Verb::Get, path);
    reply(world, token)
}

pub fn reply(world: &mut World, token: Token) -> Result<ApiReply, String> {
    match world.outcome(token) {
        Outcome::Api(result) => result,
        other => panic!("{other:?}"),
    }
}

pub fn good(body: &'static str) -> Result<ApiReply, String> {
    Ok(ApiReply { status: 200, retry_after: None, body: Bytes::from_static(body.as_bytes()) })
}

/// Until the server is reached again; the back-off is short after one failure.
fn until_good(world: &mut World) {
    let started = Instant::now();
    while get(world, "/x").is_err() {
        assert!(started.elapsed() < Duration::from_secs(8), "not found again");
        world.events_for(Duration::from_millis(50));
    }
}

fn line(world: &mut World, watch: Token) -> Bytes {
    match world.event() {
        Event::Item { token, item: Item::Line(line) } if token == watch => line,
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_of_every_verb_on_one_connection() {
    let cluster = Cluster::new(|asked| match asked.path.as_str() {
        "/busy" => Answer::Whole(429, &[("retry-after", "3")], Bytes::from_static(b"{}")),
        "/moved" => Answer::Whole(302, &[("location", "/x")], Bytes::new()),
        "/packed" => Answer::Whole(200, &[("content-encoding", "gzip")], Bytes::from_static(b"x")),
        _ => Answer::ok("{}"),
    });
    let mut world = cluster.world();
    let check = |world: &mut World, verb, method: &str, kind: &str, body: &str| {
        let token = call(world, verb, "/api/v1/nodes/n1?fieldManager=x");
        assert_eq!(reply(world, token), good("{}"));
        let asked = cluster.server.last();
        assert_eq!((asked.method.as_str(), asked.body.as_slice()), (method, body.as_bytes()));
        assert_eq!(asked.path, "/api/v1/nodes/n1?fieldManager=x");
        assert_eq!(asked.header("content-type"), kind);
        assert_eq!(asked.header("accept"), "application/json");
        assert_eq!(asked.header("user-agent"), "steplet/test");
        assert_eq!(asked.header("authorization"), "Bearer s3cret");
    };
    let body = "{\"a\":1}";
    check(&mut world, Verb::Get, "GET", "", "");
    check(&mut world, Verb::Delete, "DELETE", "", "");
    check(&mut world, Verb::Post, "POST", "application/json", body);
    check(&mut world, Verb::Put, "PUT", "application/json", body);
    check(&mut world, Verb::Patch, "PATCH", "application/strategic-merge-patch+json", body);
    let busy = get(&mut world, "/busy").unwrap();
    assert_eq!((busy.status, busy.retry_after), (429, Some(Span::from_secs(3))));
    assert!(get(&mut world, "/moved").unwrap_err().contains("a redirect (302)"));
    assert!(get(&mut world, "/packed").unwrap_err().contains("\"gzip\""));
    assert_eq!(get(&mut world, "/x"), good("{}"));
    assert_eq!(cluster.server.connections.load(Ordering::Relaxed), 1);
}

#[test]
fn many_requests_each_with_its_own_end() {
    let cluster = Cluster::new(|asked| Answer::ok(asked.path.clone()));
    let mut world = cluster.world();
    let mut open: Vec<(Token, String)> = (0..300)
        .map(|n| {
            let path = format!("/{n}");
            (call(&mut world, Verb::Get, &path), path)
        })
        .collect();
    while !open.is_empty() {
        let Event::Done { token, outcome: Outcome::Api(Ok(reply)) } = world.event() else {
            panic!("no answer")
        };
        let at = open.iter().position(|(open, _)| *open == token).expect("ended twice");
        assert_eq!(reply.body, open.remove(at).1);
    }
    assert_eq!(world.events_for(Duration::from_millis(50)), []);
    assert_eq!(world.doors.deadline(), None, "an idle door sleeps");
}

#[test]
fn a_watch_tells_its_lines_and_ends_when_the_server_ends_it() {
    let cluster = Cluster::new(|asked| match asked.path.as_str() {
        "/open" => Answer::Parts(["{\"a\":1}\n{\"b\"", ":2}\n"].map(Bytes::from).into()),
        "/ended" => Answer::ok("{\"a\":1}\n"),
        "/gone" => Answer::Whole(410, &[], Bytes::from_static(b"{\"code\":410}\n")),
        "/within" => Answer::ok("{\"a\":1}\n{\"b\""),
        "/cut" => Answer::Cut(["{\"a\":1}\n{\"b\""].map(Bytes::from).into()),
        _ => Answer::ok("{}"),
    });
    let mut world = cluster.world();
    let short = ApiCall { within: Span::from_millis(400), ..request(Verb::Watch, "/open") };
    let open = world.call(Call::Api(short));
    assert_eq!(line(&mut world, open), "{\"a\":1}");
    assert_eq!(line(&mut world, open), "{\"b\":2}");
    // Its deadline was for the head.
    assert_eq!(world.events_for(Duration::from_millis(700)), []);
    world.cancel(open);
    world.events_for(Duration::from_millis(50));
    assert_eq!(cluster.server.resets.load(Ordering::Relaxed), 1, "the server was told");
    let ended = call(&mut world, Verb::Watch, "/ended");
    assert_eq!(line(&mut world, ended), "{\"a\":1}");
    assert_eq!(reply(&mut world, ended), good(""));
    let gone = call(&mut world, Verb::Watch, "/gone");
    let answer = reply(&mut world, gone).unwrap();
    assert_eq!((answer.status, &answer.body[..]), (410, &b"{\"code\":410}\n"[..]));
    let within = call(&mut world, Verb::Watch, "/within");
    assert_eq!(line(&mut world, within), "{\"a\":1}");
    assert_eq!(reply(&mut world, within), Err("its watch ended within a line".into()));
    let cut = call(&mut world, Verb::Watch, "/cut");
    assert_eq!(line(&mut world, cut), "{\"a\":1}");
    assert!(reply(&mut world, cut).is_err());
    until_good(&mut world);
}

#[test]
fn secrets_stay_in_the_vault() {
    let secret = r#"{"kind":"Secret","metadata":{"name":"s"},"data":{"a":"czNjcmV0"}}"#;
    let cluster = Cluster::new(move |asked| match asked.path.as_str() {
        "/watch" => Answer::ok(format!("{{\"type\":\"ADDED\",\"object\":{secret}}}\n")),
        "/token" => Answer::ok(r#"{"kind":"TokenRequest","status":{"token":"czNj.t"}}"#),
        "/page" => Answer::Whole(502, &[], Bytes::from_static(b"<html>czNjcmV0")),
        _ => Answer::ok(secret),
    });
    let mut world = cluster.world();
    let ask = |world: &mut World, verb, path: &str| {
        world.call(Call::Api(ApiCall { seals: true, ..request(verb, path) }))
    };
    let token = ask(&mut world, Verb::Get, "/secret");
    let sealed = reply(&mut world, token).unwrap().body;
    let seal =
        |n: u64| format!(r#"{{"data":{{"a":{n}}},"kind":"Secret","metadata":{{"name":"s"}}}}"#);
    // The world has a secret of its own.
    assert_eq!(sealed, seal(2));
    let token = ask(&mut world, Verb::Watch, "/watch");
    let want = format!(r#"{{"object":{},"type":"ADDED"}}"#, seal(2));
    assert_eq!(line(&mut world, token), want);
    assert_eq!(reply(&mut world, token), good(""));
    let token = ask(&mut world, Verb::Post, "/token");
    assert_eq!(reply(&mut world, token), good(r#"{"kind":"TokenRequest","status":{"token":3}}"#));
    let token = ask(&mut world, Verb::Get, "/page");
    let why = reply(&mut world, token).unwrap_err();
    assert!(!why.contains("czNj"), "{why}");
}

#[test]
fn a_deadline_ends_one_request_and_leaves_the_others() {
    let cluster = Cluster::new(|asked| match asked.path.as_str() {
        "/hang" => Answer::Hang,
        _ => Answer::ok("{}"),
    });
    let mut world = cluster.world();
    let short = ApiCall { within: Span::from_millis(300), ..request(Verb::Get, "/hang") };
    let hung = world.call(Call::Api(short));
    assert_eq!(get(&mut world, "/x"), good("{}"));
    let why = reply(&mut world, hung).unwrap_err();
    assert!(why.contains("no answer of https://127.0.0.1:") && why.ends_with("0.300 s"), "{why}");
    assert_eq!(get(&mut world, "/x"), good("{}"));
    let counts = (&cluster.server.connections, &cluster.server.resets);
    assert_eq!((counts.0.load(Ordering::Relaxed), counts.1.load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn a_connection_that_carries_nothing_is_replaced_at_the_first_deadline() {
    let cluster = Cluster::new(|asked| match asked.path.as_str() {
        "/watch" => Answer::Parts([Bytes::from_static(b"{\"a\":1}\n")].into()),
        _ => Answer::ok("{}"),
    });
    let mut world = cluster.world();
    let watch = call(&mut world, Verb::Watch, "/watch");
    assert_eq!(line(&mut world, watch), "{\"a\":1}");
    world.events_for(Duration::from_millis(50));
    cluster.server.freeze();
    let short = ApiCall { within: Span::from_millis(300), ..request(Verb::Put, "/lease") };
    let lease = world.call(Call::Api(short));
    assert!(reply(&mut world, lease).unwrap_err().contains("no answer"));
    let why = reply(&mut world, watch).unwrap_err();
    assert!(why.contains("not a byte came"), "{why}");
    assert_eq!(get(&mut world, "/x"), good("{}"));
    assert_eq!(cluster.server.last().connection, 2);
}

#[test]
fn a_server_that_leaves_is_left_when_its_answers_are_there() {
    let cluster = Cluster::new(|asked| match asked.path.as_str() {
        "/watch" => Answer::Parts([Bytes::from_static(b"{\"a\":1}\n")].into()),
        "/last" => Answer::GoAway(Bytes::from_static(b"{}")),
        _ => Answer::ok("{}"),
    });
    let mut world = cluster.world();
    let watch = call(&mut world, Verb::Watch, "/watch");
    assert_eq!(line(&mut world, watch), "{\"a\":1}");
    assert_eq!(get(&mut world, "/last"), good("{}"));
    world.events_for(Duration::from_millis(100));
    for _ in 0..3 {
        assert_eq!(get(&mut world, "/x"), good("{}"));
    }
    assert_eq!(cluster.server.last().connection, 2);
    assert_eq!(world.events_for(Duration::from_millis(50)), [], "the watch goes on");
    world.cancel(watch);
    world.events_for(Duration::from_millis(50));
    assert_eq!(world.doors.deadline(), None, "the old connection is closed");
}

#[test]
fn servers_that_cannot_be_used_are_named_with_the_reason() {
    let authority = Authority::new();
    let check = |days: i32, name: &str, alpn: &[&str], trusted: bool, want: &str| {
        let pair = authority.issue(name, days);
        let server = ApiServer::start(&authority, &pair, alpn, |_| Answer::ok("{}"));
        let other = Authority::new();
        let authority = if trusted { &authority } else { &other };
        let mut world = world(access(authority, server.address.port()));
        let why = get(&mut world, "/x").unwrap_err();
        let reach = format!("cannot reach https://127.0.0.1:{}: ", server.address.port());
        assert!(why.starts_with(&reach) && why.contains(want), "{why}");
        // Those that come at once are told the same, without another try.
        assert_eq!(get(&mut world, "/x").unwrap_err(), why);
        assert!(server.connections.load(Ordering::Relaxed) <= 1);
    };
    let yes = &["h2"][..];
    check(-3, "127.0.0.1", yes, true, "the server's certificate has expired 3 days ago");
    check(9, "10.0.0.1", yes, true, "does not name 127.0.0.1");
    check(9, "127.0.0.1", yes, false, "another one of its name");
    check(9, "127.0.0.1", &["http/1.1"], true, "another protocol than we do (ALPN)");
    check(9, "127.0.0.1", &[], true, "it does not speak HTTP/2 (ALPN)");
}

#[test]
fn strangers_behind_the_port_end_in_words() {
    let authority = Authority::new();
    let check = |greeting: &'static [u8], want: &str| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut world = world(access(&authority, listener.local_addr().unwrap().port()));
        let stranger = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            std::io::Write::write_all(&mut stream, greeting).unwrap();
            // What is unread when a socket is closed takes back what was said.
            let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
        });
        let why = get(&mut world, "/x").unwrap_err();
        assert!(why.contains(want), "{why}");
        stranger.join().unwrap();
    };
    check(b"HTTP/1.0 400 Bad Request\r\n\r\n", "what it says is not TLS");
    check(b"SSH-2.0-OpenSSH_9.2\r\n", "what it says is not TLS");
    check(b"", "it has closed the connection");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut world = world(access(&authority, nobody));
    assert!(get(&mut world, "/x").unwrap_err().ends_with("connection refused"));
}

#[test]
fn after_a_failure_the_server_is_found_again() {
    let mut cluster = Cluster::new(|_| Answer::ok("{}"));
    let mut world = cluster.world();
    assert_eq!(get(&mut world, "/x"), good("{}"));
    cluster.server.kill();
    world.events_for(Duration::from_millis(50));
    let why = get(&mut world, "/x").unwrap_err();
    assert!(why.ends_with("connection refused"), "{why}");
    let listener = TcpListener::bind(cluster.server.address).unwrap();
    let pair = cluster.authority.issue("127.0.0.1", 9);
    let _server = ApiServer::on(listener, &cluster.authority, &pair, &["h2"], |_| Answer::ok("{}"));
    until_good(&mut world);
}

#[test]
fn a_host_name_is_looked_up_by_a_helper() {
    let mut cluster = Cluster::new(|_| Answer::ok("{}"));
    cluster.access.address.host = "localhost".into();
    let mut world = cluster.world();
    assert_eq!(get(&mut world, "/x"), good("{}"));
    let mut access = cluster.access.clone();
    access.address.host = "no-such-host.invalid".into();
    let mut world = self::world(access);
    let why = get(&mut world, "/x").unwrap_err();
    assert!(why.contains("its name cannot be looked up"), "{why}");
}

#[test]
fn a_large_answer_passes_and_a_huge_one_ends_alone() {
    let cluster = Cluster::new(|asked| match asked.path.as_str() {
        "/large" => Answer::ok(vec![b'x'; 10 << 20]),
        "/huge" => Answer::ok(vec![b'x'; 40 << 20]),
        "/line" => Answer::Parts([Bytes::from(vec![b'x'; 40 << 20])].into()),
        _ => Answer::ok("{}"),
    });
    let mut world = cluster.world();
    assert_eq!(get(&mut world, "/large").unwrap().body.len(), 10 << 20);
    let why = get(&mut world, "/huge").unwrap_err();
    assert_eq!(why, "its answer is longer than 33554432 bytes");
    let watch = call(&mut world, Verb::Watch, "/line");
    let why = reply(&mut world, watch).unwrap_err();
    assert_eq!(why, "a line of its watch is longer than 33554432 bytes");
    assert_eq!(get(&mut world, "/x"), good("{}"));
    assert_eq!(cluster.server.connections.load(Ordering::Relaxed), 1);
}

#[test]
fn a_new_certificate_is_shown_on_a_new_connection() {
    let mut cluster = Cluster::new(|_| Answer::ok("{}"));
    let scratch = Scratch::new("api-identity");
    let path = scratch.path().join("kubelet-client-current.pem");
    let write = |authority: &Authority| {
        let pair = authority.issue("system:node:n1", 9);
        std::fs::write(&path, format!("{}{}", pair.certificate, pair.key)).unwrap();
    };
    let pem = || Pem::File(path.clone());
    cluster.access.identity = Some((pem(), pem()));
    let mut world = cluster.world();
    let why = get(&mut world, "/x").unwrap_err();
    assert!(why.contains("kubelet-client-current.pem: no such file"), "{why}");
    write(&cluster.authority);
    until_good(&mut world);
    let first = cluster.server.last().certificate;
    assert!(!first.is_empty());
    write(&cluster.authority);
    // The files are looked at once a minute.
    world.pass(Span::from_secs(61));
    assert_eq!(get(&mut world, "/x"), good("{}"));
    let second = cluster.server.last();
    assert!(second.connection == 2 && second.certificate != first);
}
