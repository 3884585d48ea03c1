//! The helper pool with real processes: what it does.

use crate::may_mount::may_mount;
use crate::world::{World, fault, fetch, serve};
use std::fs;
use steplet_core::effect::{
    Call, ContainerFiles, DiskOp, HelperOp, HostPathKind, PodSetup, SubPath, VolumeKind,
    VolumeSetup,
};
use steplet_core::event::{DiskReply, Event, FaultKind, HelperReply, Item, Manifest, Outcome};

fn manifest(outcome: Outcome) -> Manifest {
    match outcome {
        Outcome::Helper(Ok(HelperReply::Manifest(manifest))) => *manifest,
        other => panic!("no manifest: {other:?}"),
    }
}

fn body(text: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())
}

#[test]
fn manifests_from_a_url() {
    let url = serve(|head| {
        let head = head.to_ascii_lowercase();
        match head.split(' ').nth(1) {
            Some("/pod") if head.contains("x-node: n1") => body("kind: Pod\n"),
            Some("/bad") => body("kind: [\n"),
            Some("/large") => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 11 << 20),
            _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into(),
        }
    });
    let mut world = World::new("fetch");
    let token = fetch(&mut world, format!("{url}/pod"));
    let seen = manifest(world.outcome(token));
    assert_eq!(seen.name, format!("{url}/pod"));
    assert_eq!(seen.content.unwrap().json, r#"{"kind":"Pod"}"#);
    let token = fetch(&mut world, format!("{url}/pod"));
    assert_eq!(world.outcome(token), Outcome::Same);
    let token = fetch(&mut world, format!("{url}/bad"));
    assert!(manifest(world.outcome(token)).content.is_err());
    let token = fetch(&mut world, format!("{url}/gone"));
    let gone = fault(world.outcome(token));
    assert!(gone.message.contains("404"), "{gone:?}");
    let token = fetch(&mut world, "http://127.0.0.1:9/pod".into());
    assert_ne!(fault(world.outcome(token)).kind, FaultKind::TimedOut);
}

#[test]
fn pods_with_foreign_volumes_are_set_up_and_torn_down() {
    if !may_mount("helper::pods_with_foreign_volumes_are_set_up_and_torn_down") {
        return;
    }
    let mut world = World::new("helper_pod");
    let dir = world.dir().to_owned();
    let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let volume = |name: &str, kind| VolumeSetup { name: name.into(), kind };
    let setup = |volumes| PodSetup {
        pod_dir: at("pods/u1"),
        log_dir: at("logs/u1"),
        containers: vec!["a".into()],
        volumes,
        ..PodSetup::default()
    };
    let (bad, kind) = (at("nowhere"), HostPathKind::Directory);
    let wrong = setup(vec![volume("data", VolumeKind::HostPath { path: bad.clone(), kind })]);
    let path = at("pods/u1/volumes/kubernetes.io~empty-dir/m");
    let memory = VolumeKind::MemoryDir { path: path.clone(), size_bytes: 1 << 20, gid: Some(0) };
    let right = setup(vec![volume("m", memory)]);
    let token = world.call(Call::Helper(HelperOp::SetUpPod(Box::new(wrong))));
    let message = fault(world.outcome(token)).message;
    let want = format!(
        "MountVolume.SetUp failed for volume \"data\" : \
         hostPath type check failed: {bad} is not a directory"
    );
    assert_eq!(message, want);
    for _ in 0..2 {
        let token = world.call(Call::Helper(HelperOp::SetUpPod(Box::new(right.clone()))));
        match world.outcome(token) {
            Outcome::Helper(Ok(HelperReply::PodReady(_))) => {}
            other => panic!("{other:?}"),
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounted: Vec<_> = mounts.lines().filter(|line| line.contains(&path)).collect();
    assert_eq!(mounted.len(), 1, "mounted once: {mounted:?}");
    assert!(mounted[0].contains("size=1024k"), "{mounted:?}");
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&path).unwrap()) & 0o7777;
    assert_eq!(mode, 0o3777);
    let pod_dir = at("pods/u1");
    let token = world.call(Call::Helper(HelperOp::TearDownPod { pod_dir: pod_dir.clone() }));
    assert_eq!(world.outcome(token), Outcome::Helper(Ok(HelperReply::Done)));
    assert!(!fs::exists(&pod_dir).unwrap());
}

#[test]
fn directories_inside_volumes_are_made_by_a_helper() {
    let mut world = World::new("helper_subpath");
    let dir = world.dir().to_owned();
    let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    fs::create_dir(at("volume")).unwrap();
    let sub = |path| SubPath { volume: at("volume"), path };
    let files = |path| ContainerFiles {
        subpaths: vec![sub(path)],
        log_dir: at("logs"),
        ..ContainerFiles::default()
    };
    let good = files(at("volume/a/b"));
    let bad = files(at("elsewhere"));
    let token = world.call(Call::Disk(DiskOp::PrepareContainer(Box::new(good))));
    assert_eq!(world.outcome(token), Outcome::Disk(Ok(DiskReply::Done)));
    assert!(world.dir().join("volume/a/b").is_dir());
    let token = world.call(Call::Disk(DiskOp::PrepareContainer(Box::new(bad))));
    match world.outcome(token) {
        Outcome::Disk(Err(fault)) => assert_eq!(fault.kind, FaultKind::Invalid),
        other => panic!("{other:?}"),
    }
}

#[test]
fn long_and_broken_manifests_are_read_by_a_helper() {
    let mut world = World::new("helper_manifests");
    let dir = world.dir().join("manifests");
    fs::create_dir(&dir).unwrap();
    let long = format!("a: 1\n{}\n", "# filler\n".repeat(20_000));
    fs::write(dir.join("long.yaml"), long).unwrap();
    fs::write(dir.join("broken.yaml"), "a: [1\n").unwrap();
    fs::write(dir.join("short.yaml"), "b: 2\n").unwrap();
    let path = dir.to_str().unwrap().to_owned();
    let read = |world: &mut World| {
        let path = path.clone();
        let token = world.call(Call::Disk(DiskOp::ReadManifests { path }));
        let mut items = Vec::new();
        loop {
            match world.event() {
                Event::Item { item: Item::Manifest(manifest), .. } => {
                    items.push((manifest.name.clone(), manifest.content.is_ok()));
                }
                Event::Done { token: done, outcome } => {
                    assert_eq!(done, token);
                    items.sort();
                    let names = match outcome {
                        Outcome::Disk(Ok(DiskReply::Manifests(Some(names)))) => names,
                        other => panic!("{other:?}"),
                    };
                    return (items, names);
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let all = vec!["broken.yaml".to_owned(), "long.yaml".into(), "short.yaml".into()];
    let want = [("broken.yaml", false), ("long.yaml", true), ("short.yaml", true)];
    let want = want.map(|(name, good)| (name.to_owned(), good)).to_vec();
    assert_eq!(read(&mut world), (want, all.clone()));
    assert_eq!(read(&mut world), (vec![], all), "nothing has changed");
    fs::remove_file(dir.join("long.yaml")).unwrap();
    fs::write(dir.join("broken.yaml"), "a: [1]\n").unwrap();
    let want = vec![("broken.yaml".to_owned(), true)];
    assert_eq!(read(&mut world), (want, vec!["broken.yaml".to_owned(), "short.yaml".into()]));
}
