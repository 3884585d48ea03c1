//! The way of a secret through the doors: from the API server to a file and to a container, and nowhere else.

use crate::api::{access, request};
use crate::world::api_server::{Answer, ApiServer, Authority};
use crate::world::runtime::{self, Runtime};
use crate::world::{Scratch, World, fault};
use bytes::Bytes;
use prost::Message;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use steplet::shell::doors::Outside;
use steplet_api::cluster::Secret;
use steplet_api::cri::{ContainerConfig, CreateContainerRequest, KeyValue};
use steplet_core::chain::{encode_effects, encode_event};
use steplet_core::effect::{
    ApiCall, Call, Content, Effect, HelperOp, Peer, Place, PodSetup, Rpc, SealedText, Verb,
    VolumeFile, VolumeKind, VolumeSetup,
};
use steplet_core::event::{Event, FaultKind, HelperReply, Outcome, RpcError};
use steplet_core::ids::Token;
use steplet_core::sealed::Sealed;
use steplet_core::time::Span;

const CANARY: &str = "canary-in-a-coal-mine";
const CODED: &str = "Y2FuYXJ5LWluLWEtY29hbC1taW5l";

/// What a tape would hold of a call and its answer must say nothing.
fn ask(world: &mut World, call: Call) -> Outcome {
    let effect = Effect::Call { token: Token(0), call: call.clone() };
    let token = world.call(call);
    let outcome = world.outcome(token);
    let event = Event::Done { token, outcome: outcome.clone() };
    for taped in [encode_effects(&[effect]), encode_event(&event)] {
        let text = String::from_utf8_lossy(&taped);
        assert!(!text.contains(CANARY) && !text.contains(CODED), "{text}");
    }
    outcome
}

fn set_up(world: &World, seal: Sealed) -> Call {
    let at = |name: &str| world.dir().join(name).to_str().unwrap().to_owned();
    let file =
        |path: &str, content| VolumeFile { path: path.into(), mode: 0o600, uid: None, content };
    let files = vec![
        file("word", Content::Decoded(seal)),
        file("coded", Content::Sealed(seal)),
        file("open", Content::Plain(Bytes::from_static(b"plain"))),
    ];
    let kind = VolumeKind::Files { path: at("pods/u/v"), memory: false, gid: None, files };
    let volumes = vec![VolumeSetup { name: "v".into(), kind }];
    let (pod_dir, log_dir) = (at("pods/u"), at("logs/u"));
    Call::Helper(HelperOp::SetUpPod(Box::new(PodSetup {
        pod_dir,
        log_dir,
        volumes,
        ..PodSetup::default()
    })))
}

fn create(seal: Sealed) -> Call {
    let envs = vec![KeyValue { key: "URL".into(), value: vec![] }];
    let config = Some(ContainerConfig { envs, args: vec!["".into()], ..Default::default() });
    let body = CreateContainerRequest { config, ..Default::default() }.encode_to_vec().into();
    let parts = vec![
        Content::Plain(Bytes::from_static(b"http://me:")),
        Content::Decoded(seal),
        Content::Plain(Bytes::from_static(b"@host")),
    ];
    let sealed = vec![
        SealedText { place: Place::Env("URL".into()), parts },
        SealedText { place: Place::Arg(0), parts: vec![Content::Decoded(seal)] },
    ];
    let within = Some(Span::from_secs(20));
    let path = "/runtime.v1.RuntimeService/CreateContainer".into();
    Call::Rpc(Rpc { peer: Peer::Runtime, path, body, within, same_as_last: false, sealed })
}

#[test]
fn a_secret_reaches_its_file_and_its_container_and_no_tape() {
    let authority = Authority::new();
    let pair = authority.issue("127.0.0.1", 9);
    let secret =
        format!(r#"{{"kind":"Secret","metadata":{{"name":"s"}},"data":{{"k":"{CODED}"}}}}"#);
    let server = ApiServer::start(&authority, &pair, &["h2"], move |_| Answer::ok(secret.clone()));
    let scratch = Scratch::new("secrets");
    let socket = scratch.path().join("runtime.sock");
    let api = Some(access(&authority, server.address.port()));
    let mut world = World::with(scratch, Outside { api, ..Outside::of(&socket) });
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let _runtime = Runtime::start(&socket, move |_, body| {
        heard.lock().unwrap().push(body.to_vec());
        runtime::Answer::Message(Bytes::new())
    });

    let get = ApiCall { seals: true, ..request(Verb::Get, "/api/v1/namespaces/ns/secrets/s") };
    let Outcome::Api(Ok(reply)) = ask(&mut world, Call::Api(get)) else { panic!("no answer") };
    let secret: Secret = serde_json::from_slice(&reply.body).unwrap();
    let seal = Sealed::numbered(secret.data["k"]);

    let call = set_up(&world, seal);
    let outcome = ask(&mut world, call);
    assert!(matches!(outcome, Outcome::Helper(Ok(HelperReply::PodReady(_)))), "{outcome:?}");
    let read = |name: &str| fs::read_to_string(world.dir().join("pods/u/v").join(name)).unwrap();
    assert_eq!(["word", "coded", "open"].map(read), [CANARY, CODED, "plain"]);
    let mode = fs::metadata(world.dir().join("pods/u/v/word")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);

    assert_eq!(ask(&mut world, create(seal)), Outcome::Rpc(Ok(Bytes::new())));
    let told = told.lock().unwrap().pop().unwrap();
    let config = CreateContainerRequest::decode(&*told).unwrap().config.unwrap();
    assert_eq!(config.envs[0].value, format!("http://me:{CANARY}@host").into_bytes());
    assert_eq!(config.args, [CANARY]);

    // A seal of an earlier life of the program: the source has to be read again.
    let lost = Sealed::numbered(99);
    let call = set_up(&world, lost);
    assert_eq!(fault(ask(&mut world, call)).kind, FaultKind::SealLost);
    match ask(&mut world, create(lost)) {
        Outcome::Rpc(Err(error)) => assert_eq!(error.code, RpcError::DATA_LOSS),
        other => panic!("{other:?}"),
    }
}
