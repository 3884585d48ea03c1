//! What the recorder writes is what the reader gives back: through rotation, compression, cuts and damage.

use crate::stream::{Dir, Stream, boot};
use std::fs;
use std::path::Path;
use steplet::shell::tape::reader::{Segment, Step, Tape};
use steplet::shell::tape::replay::{Difference, Notice, Replay, Replayed, Unreadable};
use steplet::shell::tape::{BUILD, TapeJob, compress_segment};
use steplet::shell::vault::Vault;
use steplet_core::chain::encode_event;
use steplet_core::effect::{Call, HelperOp};
use steplet_core::rng::Rng;
use steplet_core::time::Span;

const SMALL: u64 = 1 << 20;

/// All steps of a tape, which is whole.
fn steps(path: &Path) -> Vec<Step> {
    let mut all = Vec::new();
    for file in Tape::open(path).unwrap().files {
        let mut segment = Segment::open(&file).unwrap();
        while let Some(step) = segment.next_step() {
            all.push(step);
        }
        assert!(segment.rest().is_none(), "{}", file.display());
    }
    all
}

struct Seen {
    done: Replayed,
    difference: Option<Difference>,
    notices: Vec<Notice>,
}

fn replay(path: &Path) -> Result<Seen, Unreadable> {
    let tape = Tape::open(path).unwrap();
    let mut notices = Vec::new();
    let mut done = Replayed::default();
    let on_notice = &mut |notice| notices.push(notice);
    let mut replay = Replay { any_build: false, on_step: &mut |_, _| {}, on_notice };
    let difference = replay.run(&tape, &mut done)?;
    Ok(Seen { done, difference, notices })
}

/// A run of so many steps on a small tape, its closed segments compressed.
fn run(dir: &Dir, steps: u64, seed: u64) -> Stream {
    let mut stream = Stream::start(&dir.0, SMALL, seed);
    while stream.taped.steps() < steps {
        stream.next();
        stream.helpers();
    }
    stream.finish()
}

#[test]
fn a_run_comes_back_step_by_step() {
    let dir = Dir::new("tape-back");
    let stream = run(&dir, 20_000, 1);
    let files = dir.files();
    assert!(files.len() > 4, "the tape has segments: {files:?}");
    let read = steps(&dir.0);
    assert_eq!(read.len(), stream.said.len());
    for (step, (now, event)) in read.iter().zip(&stream.said) {
        assert_eq!((step.now, &step.event), (*now, &encode_event(event)), "step {}", step.number);
        assert!(step.ended.is_some());
    }
    assert_eq!(read.last().map(|step| step.number), Some(stream.taped.steps() - 1));
    let checks = read.iter().filter_map(|step| step.ended.as_ref()?.check.as_ref()).count();
    assert_eq!(checks, 20_000 / 256);
}

#[test]
fn a_replay_is_equal_and_says_so() {
    let dir = Dir::new("tape-equal");
    let stream = run(&dir, 5_000, 2);
    let seen = replay(&dir.0).unwrap();
    assert!(seen.difference.is_none() && seen.notices.is_empty() && !seen.done.damaged);
    assert_eq!(seen.done.steps, 5_000);
    assert_eq!(&seen.done.chain, stream.taped.chain());
    let passed = stream.now.mono.since(stream.said[0].0.mono);
    assert_eq!(seen.done.simulated, passed);
    // Each segment replays alone, too.
    for file in dir.files() {
        let seen = replay(&file).unwrap();
        assert!(seen.difference.is_none() && seen.done.steps > 0, "{}", file.display());
        assert!(seen.done.simulated > Span::ZERO);
    }
}

#[test]
fn a_cut_tape_replays_up_to_the_cut() {
    let dir = Dir::new("tape-cut");
    let stream = run(&dir, 60, 3);
    let [plain] = &dir.files()[..] else { panic!("one segment") };
    let bytes = fs::read(plain).unwrap();
    let packed = dir.0.join("packed");
    fs::copy(plain, dir.0.join("copy.tape")).unwrap();
    compress_segment(&dir.0.join("copy.tape")).unwrap();
    fs::rename(dir.0.join("copy.tape.z"), &packed).unwrap();
    let cut_file = dir.0.join("cut");
    let mut most = 0;
    for bytes in [bytes, fs::read(&packed).unwrap()] {
        for cut in 0..bytes.len() {
            fs::write(&cut_file, &bytes[..cut]).unwrap();
            let Ok(seen) = replay(&cut_file) else { continue };
            assert!(seen.difference.is_none(), "cut at {cut}");
            assert!(!seen.done.damaged, "a cut is what a power cut leaves");
            assert!(seen.done.steps <= stream.taped.steps());
            most = most.max(seen.done.steps);
            for notice in &seen.notices {
                let text = notice.to_string();
                assert!(text.contains("the file ends inside a frame"), "{text}");
            }
        }
    }
    assert_eq!(most, stream.taped.steps());
}

#[test]
fn a_damaged_tape_never_passes_for_whole() {
    let dir = Dir::new("tape-damage");
    run(&dir, 40, 4);
    let [plain] = &dir.files()[..] else { panic!("one segment") };
    let whole = fs::read(plain).unwrap();
    let bad_file = dir.0.join("bad");
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] = bytes[at].wrapping_add(1 + (at % 255) as u8);
        fs::write(&bad_file, &bytes).unwrap();
        match replay(&bad_file) {
            Err(_) => {}
            Ok(seen) => assert!(!seen.notices.is_empty(), "byte {at}"),
        }
    }
    for garbage in [&b""[..], b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0", &[b'a'; 9000]] {
        fs::write(&bad_file, garbage).unwrap();
        assert!(matches!(replay(&bad_file), Err(Unreadable::File { .. })));
    }
}

/// The bytes of the frames of a plain segment.
fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    bytes = &bytes[8..];
    while !bytes.is_empty() {
        let mut length = 0;
        let mut place = 0;
        loop {
            length |= usize::from(bytes[place] & 0x7f) << (7 * place);
            place += 1;
            if bytes[place - 1] < 0x80 {
                break;
            }
        }
        let (frame, rest) = bytes[place + 4..].split_at(length);
        all.push(frame.to_vec());
        bytes = rest;
    }
    all
}

fn framed(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"sttape\x01p".to_vec();
    for frame in frames {
        let mut length = frame.len();
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend(crc32fast::hash(frame).to_le_bytes());
        bytes.extend(frame);
    }
    bytes
}

#[test]
fn well_framed_nonsense_is_only_nonsense() {
    let dir = Dir::new("tape-nonsense");
    run(&dir, 40, 10);
    let file = dir.files().remove(0);
    let sound = fs::read(&file).unwrap();
    let all = frames(&sound);
    assert_eq!(framed(&all), sound);
    let mut rng = Rng::new(10);
    let mut refused = 0;
    for _ in 0..3_000 {
        let mut spoilt = all.clone();
        let count = spoilt.len() as u64;
        match rng.below(4) {
            0 => {
                let frame = &mut spoilt[rng.below(count) as usize];
                let length = frame.len() as u64;
                if length > 0 {
                    frame[rng.below(length) as usize] = rng.draw() as u8;
                }
            }
            1 => spoilt.swap(rng.below(count) as usize, rng.below(count) as usize),
            2 => {
                spoilt.remove(rng.below(count) as usize);
            }
            _ => {
                let frame = &mut spoilt[rng.below(count) as usize];
                let length = frame.len() as u64;
                frame.truncate(rng.below(length + 1) as usize);
            }
        }
        fs::write(&file, framed(&spoilt)).unwrap();
        let Ok(mut segment) = Segment::open(&file) else {
            refused += 1;
            continue;
        };
        let mut steps = 0;
        while segment.next_step().is_some() {
            steps += 1;
        }
        assert!(steps <= all.len());
        refused += u64::from(segment.rest().is_some());
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn a_missing_middle_segment_is_told() {
    let dir = Dir::new("tape-missing");
    let stream = run(&dir, 12_000, 5);
    let lost = steps(&dir.files()[1]);
    fs::remove_file(&dir.files()[1]).unwrap();
    let seen = replay(&dir.0).unwrap();
    assert!(seen.difference.is_none() && seen.done.damaged);
    let [Notice::Missing { steps, segments: 1, .. }] = &seen.notices[..] else {
        panic!("{:?}", seen.notices)
    };
    assert_eq!(*steps, lost.len() as u64);
    assert_eq!(seen.done.steps + steps, stream.taped.steps());
    assert_eq!(&seen.done.chain, stream.taped.chain());
}

#[test]
fn a_tape_of_another_build_is_refused_by_name() {
    let dir = Dir::new("tape-build");
    run(&dir, 30, 6);
    let file = dir.files().remove(0);
    let mut bytes = fs::read(&file).unwrap();
    // The first frame: one or two bytes of length, four of checksum, then the header.
    let length_bytes = 1 + usize::from(bytes[8] >= 0x80);
    let length = usize::from(bytes[8] & 0x7f) + 128 * (length_bytes - 1) * usize::from(bytes[9]);
    let crc = 8 + length_bytes;
    let build = bytes.windows(BUILD.len()).position(|w| w == BUILD.as_bytes()).unwrap();
    bytes[build] = b'9';
    let sum = crc32fast::hash(&bytes[crc + 4..crc + 4 + length]);
    bytes[crc..crc + 4].copy_from_slice(&sum.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    let Err(why) = replay(&file) else { panic!("it was replayed") };
    assert!(why.to_string().contains(&format!("build 9{}", &BUILD[1..])), "{why}");
}

#[test]
fn runs_share_a_directory_within_its_bound() {
    let dir = Dir::new("tape-ring");
    let total = || dir.files().iter().map(|file| file.metadata().unwrap().len()).sum::<u64>();
    for seed in 0..3 {
        // Killed without a last word, with an open segment left behind.
        let mut stream = Stream::start(&dir.0, SMALL, seed);
        let left = stream.helpers();
        assert_eq!(left.len(), usize::from(seed > 0), "the open segment of the run before");
        for n in 0..40_000 {
            stream.next();
            if n % 100 == 0 {
                stream.helpers();
                assert!(total() <= SMALL, "{} bytes", total());
            }
        }
        stream.helpers();
    }
    assert!(dir.files().len() >= 8, "{:?}", dir.files());
    let seen = replay(&dir.0).unwrap();
    assert!(seen.difference.is_none() && !seen.done.damaged, "{:?}", seen.notices);
}

#[test]
fn what_is_written_is_synced_in_the_helper() {
    let dir = Dir::new("tape-sync");
    let mut stream = Stream::start(&dir.0, SMALL, 7);
    let from = stream.now.mono;
    let mut syncs = |until, next: &dyn Fn(&mut Stream)| {
        let mut syncs = 0;
        while stream.now.mono.since(from) < Span::from_secs(until) {
            next(&mut stream);
            let jobs = stream.helpers();
            syncs += jobs.iter().filter(|job| matches!(job, TapeJob::Sync(_))).count();
        }
        syncs
    };
    let news = |stream: &mut Stream| stream.later("/healthz");
    let same = |stream: &mut Stream| stream.later("");
    assert_eq!(syncs(60, &news), 12);
    assert_eq!(syncs(240, &same), 3, "an idle node spares the disk");
    assert_eq!(syncs(300, &news), 12);
}

#[test]
fn a_directory_that_cannot_be_made_stops_only_the_tape() {
    let dir = Dir::new("tape-nodir");
    let blocked = dir.0.join("tapes");
    fs::write(&blocked, "a file").unwrap();
    let mut stream = Stream::start(&blocked, SMALL, 8);
    let from = stream.now.mono;
    while stream.now.mono.since(from) < Span::from_secs(30) {
        stream.later("/healthz");
    }
    assert!(!stream.recorder().recording());
    assert_eq!(stream.recorder().lost(), stream.taped.steps());
    fs::remove_file(&blocked).unwrap();
    while stream.now.mono.since(from) < Span::from_secs(61) {
        stream.later("/healthz");
    }
    assert!(stream.recorder().recording());
    let lost = stream.recorder().lost();
    let stream = stream.finish();
    let seen = replay(&blocked).unwrap();
    assert!(seen.difference.is_none());
    assert_eq!(seen.done.steps, stream.taped.steps() - lost);
}

#[test]
fn secrets_of_the_manifest_url_stay_off_the_tape() {
    const HEADER: &str = "Bearer canary-7f3a9c";
    const URL: &str = "https://me:canary-51b2d8@manifests.example/pods?token=canary-c40e17";
    let dir = Dir::new("tape-canary");
    let mut vault = Vault::default();
    let mut boot = boot(9);
    let settings = &mut boot.settings;
    (settings.static_pod_url, settings.static_pod_url_whole) = vault.seal_url(URL);
    settings.static_pod_url_headers = vec![("Authorization".into(), vault.seal(HEADER))];
    let mut stream = Stream::start_with(&dir.0, SMALL, boot);
    for _ in 0..300 {
        stream.next();
    }
    let stream = stream.finish();
    let is_fetch = |call: &&Call| matches!(call, Call::Helper(HelperOp::FetchManifest { .. }));
    let Some(Call::Helper(HelperOp::FetchManifest { url, whole: Some(whole), headers })) =
        stream.calls.iter().find(is_fetch)
    else {
        panic!("the URL is fetched")
    };
    let open = |seal| vault.open(seal).unwrap().expose().to_owned();
    assert_eq!((open(*whole), open(headers[0].1)), (URL.to_owned(), HEADER.to_owned()));
    for file in dir.files() {
        let plain = fs::read(&file).unwrap();
        let holds = |what: &str| plain.windows(what.len()).any(|bytes| bytes == what.as_bytes());
        assert!(!holds("canary-"), "{}", file.display());
        assert!(holds(url) && holds("Authorization"), "what may be shown is there");
    }
}
