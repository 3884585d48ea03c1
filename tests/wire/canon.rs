//! The digest and the canonical form of a runtime's lists, on real messages in every order.

use std::collections::BTreeMap;

use prost::Message;
use steplet_api::cri;
use steplet_wire::canon::{self, CONTAINERS, POD_SANDBOXES, Shape};

use crate::memory::Rng;

fn map(of: &str, n: usize) -> BTreeMap<String, String> {
    (0..n).map(|i| (format!("{of}-key-{i}"), format!("{of}-value-{i}"))).collect()
}

fn containers(n: usize) -> cri::ListContainersResponse {
    let one = |i: usize| cri::Container {
        id: format!("{i:064x}"),
        pod_sandbox_id: format!("{:064x}", i / 2),
        metadata: Some(cri::ContainerMetadata { name: "main".into(), attempt: i as u32 }),
        image: Some(cri::ImageSpec {
            image: "busybox".into(),
            annotations: map("image", 3),
            ..Default::default()
        }),
        state: (i % 4) as i32,
        created_at: 1_700_000_000 + i as i64,
        labels: map("label", 5),
        annotations: map("annotation", 4),
        ..Default::default()
    };
    cri::ListContainersResponse { containers: (0..n).map(one).collect() }
}

fn sandboxes(n: usize) -> cri::ListPodSandboxResponse {
    let one = |i: usize| cri::PodSandbox {
        id: format!("{i:064x}"),
        metadata: Some(cri::PodSandboxMetadata { name: format!("pod-{i}"), ..Default::default() }),
        labels: map("label", 5),
        annotations: map("annotation", 4),
        ..Default::default()
    };
    cri::ListPodSandboxResponse { items: (0..n).map(one).collect() }
}

/// The fields of a message as slices, keys and lengths included.
fn split(message: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = message;
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let before = rest;
        let (number, kind) = prost::encoding::decode_key(&mut rest).expect("a key");
        let context = prost::encoding::DecodeContext::default();
        prost::encoding::skip_field(kind, number, &mut rest, context).expect("a field");
        fields.push(before[..before.len() - rest.len()].to_vec());
    }
    fields
}

/// The payload of a length-delimited field.
fn payload(field: &[u8]) -> &[u8] {
    let mut rest = field;
    prost::encoding::decode_key(&mut rest).expect("a key");
    let length = prost::encoding::decode_varint(&mut rest).expect("a length") as usize;
    assert_eq!(rest.len(), length);
    rest
}

fn wrap(number: u32, value: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::bytes::encode(number, &value.to_vec(), &mut field);
    field
}

/// The list in another order: its entries, their fields, and the maps of an image inside.
fn shuffled(list: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut entries = split(list);
    for entry in &mut entries {
        let mut fields = split(payload(entry));
        for field in &mut fields {
            if field[0] == 4 << 3 | 2 {
                let mut image = split(payload(field));
                rng.shuffle(&mut image);
                *field = wrap(4, &image.concat());
            }
        }
        rng.shuffle(&mut fields);
        *entry = wrap(1, &fields.concat());
    }
    rng.shuffle(&mut entries);
    entries.concat()
}

#[test]
fn every_order_of_a_list_is_one_list() {
    let check = |list: Vec<u8>, shape: &Shape| {
        let mut rng = Rng(list.len() as u64);
        let digest = canon::digest(&list, shape).expect("well formed");
        let canonical = canon::canonical(&list, shape).expect("well formed");
        assert!(canonical.len() <= list.len());
        assert_eq!(canon::canonical(&canonical, shape).as_ref(), Ok(&canonical));
        for _ in 0..100 {
            let other = shuffled(&list, &mut rng);
            assert_ne!(other, list);
            assert_eq!(canon::digest(&other, shape), Ok(digest));
            assert_eq!(canon::canonical(&other, shape).as_ref(), Ok(&canonical));
        }
    };
    check(containers(20).encode_to_vec(), &CONTAINERS);
    check(sandboxes(20).encode_to_vec(), &POD_SANDBOXES);
}

#[test]
fn the_canonical_form_is_sorted_and_says_the_same() {
    let mut list = containers(30);
    let mut rng = Rng(7);
    let bytes = shuffled(&list.encode_to_vec(), &mut rng);
    let canonical = canon::canonical(&bytes, &CONTAINERS).expect("well formed");
    let back = cri::ListContainersResponse::decode(&canonical[..]).expect("well formed");
    list.containers.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(back, list);
    // With sorted maps prost writes the canonical form itself.
    assert_eq!(list.encode_to_vec(), canonical);
}

#[test]
fn every_changed_value_is_seen() {
    type Change = fn(&mut cri::ListContainersResponse);
    let changes: &[Change] = &[
        |l| drop(l.containers.pop()),
        |l| l.containers.push(l.containers[0].clone()),
        |l| l.containers[3].id = "x".into(),
        |l| l.containers[3].state += 1,
        |l| l.containers[3].created_at += 1,
        |l| l.containers[3].metadata.as_mut().expect("set").attempt += 1,
        |l| l.containers[3].metadata = None,
        |l| l.containers[3].image_ref = "x".into(),
        |l| drop(l.containers[3].labels.insert("label-key-1".into(), "other".into())),
        |l| drop(l.containers[3].labels.remove("label-key-1")),
        |l| drop(l.containers[3].labels.insert("more".into(), String::new())),
        |l| {
            let value = l.containers[3].labels.remove("label-key-1").expect("set");
            l.containers[3].annotations.insert("label-key-1".into(), value);
        },
        |l| {
            let labels = &mut l.containers[3].labels;
            labels.insert("label-key-1".into(), "label-value-2".into());
            labels.insert("label-key-2".into(), "label-value-1".into());
        },
        |l| {
            let image = l.containers[3].image.as_mut().expect("set");
            image.annotations.insert("image-key-0".into(), "other".into());
        },
        |l| {
            let (a, b) = (l.containers[3].state, l.containers[4].state);
            assert_ne!(a, b);
            (l.containers[3].state, l.containers[4].state) = (b, a);
        },
    ];
    let list = containers(10);
    let both = |list: &cri::ListContainersResponse| {
        let bytes = list.encode_to_vec();
        (canon::digest(&bytes, &CONTAINERS), canon::canonical(&bytes, &CONTAINERS))
    };
    let before = both(&list);
    for (i, change) in changes.iter().enumerate() {
        let mut list = list.clone();
        change(&mut list);
        let after = both(&list);
        assert!(after.0.is_ok() && before.0 != after.0, "change {i}");
        assert!(after.1.is_ok() && before.1 != after.1, "change {i}");
    }
}

#[test]
fn every_flipped_bit_is_seen_or_refused() {
    let bytes = containers(3).encode_to_vec();
    let digest = canon::digest(&bytes, &CONTAINERS).expect("well formed");
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            assert_ne!(canon::digest(&changed, &CONTAINERS), Ok(digest), "byte {at} bit {bit}");
        }
    }
}

#[test]
fn mutated_lists_never_panic_or_grow() {
    let bytes = containers(5).encode_to_vec();
    let mut rng = Rng(1);
    let mut refused = 0;
    for _ in 0..20_000 {
        let changed = rng.mutate(&bytes);
        let digest = canon::digest(&changed, &CONTAINERS);
        match canon::canonical(&changed, &CONTAINERS) {
            Ok(canonical) => {
                assert!(canonical.len() <= changed.len());
                assert!(digest.is_ok());
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 1000 && refused < 20_000, "{refused} refused");
}
