//! Manifests on disk: what a watch notices, what a reading says.

use crate::world::World;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use steplet_core::effect::{Call, DiskOp};
use steplet_core::event::{DiskReply, Event, FaultKind, Item, Outcome};
use steplet_core::ids::Token;

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn watch(world: &mut World, path: &Path) -> Token {
    let path = text(path);
    world.call(Call::Disk(DiskOp::WatchManifests { path }))
}

/// How often the watch speaks up within a moment; its end is a failure.
fn changes(world: &mut World, token: Token) -> usize {
    let events = world.events_for(Duration::from_millis(60));
    for event in &events {
        assert_eq!(event, &Event::Item { token, item: Item::PathChanged });
    }
    events.len()
}

#[test]
fn a_directory_is_watched_the_way_editors_write() {
    let mut world = World::new("watch");
    let dir = world.dir().join("manifests");
    fs::create_dir(&dir).unwrap();
    let token = watch(&mut world, &dir);
    assert_eq!(changes(&mut world, token), 0);
    // Half-written is not told; written is.
    let mut file = File::create(dir.join("a.yaml")).unwrap();
    file.write_all(b"half").unwrap();
    assert_eq!(changes(&mut world, token), 0);
    drop(file);
    assert_eq!(changes(&mut world, token), 1);
    // The temporary files of editors are not told, their renaming is.
    fs::write(dir.join(".a.yaml.swp"), "x").unwrap();
    assert_eq!(changes(&mut world, token), 0);
    fs::rename(dir.join(".a.yaml.swp"), dir.join("a.yaml")).unwrap();
    assert_eq!(changes(&mut world, token), 1);
    fs::hard_link(dir.join("a.yaml"), dir.join("b.yaml")).unwrap();
    assert_eq!(changes(&mut world, token), 1);
    std::os::unix::fs::symlink("a.yaml", dir.join("c.yaml")).unwrap();
    assert_eq!(changes(&mut world, token), 1);
    fs::remove_file(dir.join("a.yaml")).unwrap();
    assert_eq!(changes(&mut world, token), 1);
    // Many changes at once are told once or twice, not a hundred times.
    for n in 0..100 {
        fs::write(dir.join(format!("{n}.yaml")), "x").unwrap();
    }
    assert!(changes(&mut world, token) <= 2);
    world.cancel(token);
    fs::write(dir.join("late.yaml"), "x").unwrap();
    assert_eq!(changes(&mut world, token), 0);
}

#[test]
fn a_file_is_watched_through_its_replacements() {
    let mut world = World::new("watch");
    let path = world.dir().join("pod.yaml");
    fs::write(&path, "a").unwrap();
    let token = watch(&mut world, &path);
    fs::write(world.dir().join("other.yaml"), "x").unwrap();
    assert_eq!(changes(&mut world, token), 0);
    for round in 0..3 {
        fs::write(world.dir().join("new"), "b").unwrap();
        fs::rename(world.dir().join("new"), &path).unwrap();
        assert_eq!(changes(&mut world, token), 1, "round {round}");
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(changes(&mut world, token), 1);
    fs::write(&path, "c").unwrap();
    assert_eq!(changes(&mut world, token), 1);
}

#[test]
fn a_watch_ends_with_what_it_watches() {
    let mut world = World::new("watch");
    let dir = world.dir().join("manifests");
    let end = |world: &mut World, token| loop {
        match world.event() {
            Event::Item { item: Item::PathChanged, .. } => {}
            Event::Done { token: done, outcome: Outcome::Disk(Err(fault)) } if done == token => {
                return fault.kind;
            }
            other => panic!("{other:?}"),
        }
    };
    let token = watch(&mut world, &dir);
    assert_eq!(end(&mut world, token), FaultKind::NotFound);
    fs::create_dir(&dir).unwrap();
    let token = watch(&mut world, &dir);
    fs::rename(&dir, world.dir().join("moved")).unwrap();
    assert_eq!(end(&mut world, token), FaultKind::NotFound);
    let moved = world.dir().join("moved");
    let token = watch(&mut world, &moved);
    fs::remove_dir(moved).unwrap();
    assert_eq!(end(&mut world, token), FaultKind::NotFound);
}

#[test]
fn reading_says_what_changed() {
    let mut world = World::new("read");
    let dir = world.dir().join("manifests");
    let path = text(&dir);
    let ask = |world: &mut World| {
        let path = path.clone();
        world.call(Call::Disk(DiskOp::ReadManifests { path }))
    };
    let read = |world: &mut World| {
        let token = ask(world);
        let mut items = Vec::new();
        loop {
            match world.event() {
                Event::Item { item: Item::Manifest(m), .. } => items.push(m.name.clone()),
                Event::Done { token: done, outcome } if done == token => match outcome {
                    Outcome::Disk(Ok(DiskReply::Manifests(names))) => return (items, names),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        }
    };
    let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    assert_eq!(read(&mut world), (vec![], None));
    fs::create_dir(&dir).unwrap();
    assert_eq!(read(&mut world), (vec![], Some(vec![])));
    fs::write(dir.join("b.yaml"), "b: 1\n").unwrap();
    fs::write(dir.join("a.json"), "{\"a\": 1}").unwrap();
    fs::create_dir(dir.join("directory")).unwrap();
    let both = names(&["a.json", "b.yaml"]);
    assert_eq!(read(&mut world), (both.clone(), Some(both.clone())));
    assert_eq!(read(&mut world), (vec![], Some(both.clone())));
    // Touched but the same; then changed back and forth between two readings.
    fs::write(dir.join("b.yaml"), "b: 1\n").unwrap();
    assert_eq!(read(&mut world), (vec![], Some(both.clone())));
    fs::write(dir.join("b.yaml"), "b: 2\n").unwrap();
    assert_eq!(read(&mut world), (names(&["b.yaml"]), Some(both.clone())));
    // A reading that is given up has told nothing for certain.
    fs::write(dir.join("b.yaml"), "b: 3\n").unwrap();
    let token = ask(&mut world);
    world.cancel(token);
    assert_eq!(read(&mut world), (both.clone(), Some(both)));
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(read(&mut world), (vec![], None));
}

#[test]
fn a_thousand_manifests_are_read_in_short_turns() {
    let mut world = World::new("read_many");
    let dir = world.dir().join("manifests");
    fs::create_dir(&dir).unwrap();
    for n in 0..1000 {
        fs::write(dir.join(format!("{n:04}.yaml")), format!("kind: Pod\nn: {n}\n")).unwrap();
    }
    let path = text(&dir);
    let token = world.call(Call::Disk(DiskOp::ReadManifests { path }));
    let mut items = 0;
    loop {
        match world.event() {
            Event::Item { .. } => items += 1,
            Event::Done {
                outcome: Outcome::Disk(Ok(DiskReply::Manifests(Some(names)))), ..
            } => {
                assert_eq!(names.len(), 1000);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(items, 1000);
    assert!(world.turns > 3, "all in {} turns", world.turns);
    world.cancel(token);
    fs::write(dir.join("one-more.yaml"), "").unwrap();
    let token = world.call(Call::Disk(DiskOp::ReadManifests { path: text(&dir) }));
    match world.outcome(token) {
        Outcome::Disk(Err(fault)) => assert!(fault.message.ends_with("1000 files: none is read")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn links_and_lists() {
    let mut world = World::new("links");
    let link = world.dir().join("containers/web.log");
    for target in ["/var/log/pods/a/0.log", "/var/log/pods/a/1.log", "/var/log/pods/a/1.log"] {
        let op = DiskOp::Symlink { link: text(&link), target: target.into() };
        let token = world.call(Call::Disk(op));
        assert_eq!(world.outcome(token), Outcome::Disk(Ok(DiskReply::Done)));
        assert_eq!(fs::read_link(&link).unwrap(), Path::new(target));
    }
    let mut list = |path: String| {
        let token = world.call(Call::Disk(DiskOp::List { path }));
        world.outcome(token)
    };
    let names = |names: &[&str]| {
        let names = names.iter().map(|n| (*n).to_owned()).collect();
        Outcome::Disk(Ok(DiskReply::Names(names)))
    };
    assert_eq!(list(text(link.parent().unwrap())), names(&["web.log"]));
    assert_eq!(list("/nonexistent/pods".into()), names(&[]));
}
