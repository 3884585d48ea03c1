//! `protogen REPO`: proto/*.proto to the committed Rust files, one file an API.

use prost_types::{DescriptorProto, FileDescriptorProto, field_descriptor_proto::Type};
use std::collections::BTreeSet;
use std::path::Path;

/// The CRI calls whose messages a tape shows by field and lets edit: they get serde derives.
const SHOWN: [&str; 22] = [
    "CreateContainer",
    "ContainerStatus",
    "ImageFsInfo",
    "ImageStatus",
    "ListContainers",
    "ListImages",
    "ListPodSandbox",
    "PodSandboxStatus",
    "PullImage",
    "RemoveContainer",
    "RemoveImage",
    "RemovePodSandbox",
    "ReopenContainerLog",
    "RunPodSandbox",
    "RuntimeConfig",
    "StartContainer",
    "Status",
    "StopContainer",
    "StopPodSandbox",
    "UpdateContainerResources",
    "UpdateRuntimeConfig",
    "Version",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let repo = std::env::args().nth(1).ok_or("usage: protogen REPO")?;
    let repo = Path::new(&repo);
    for (proto, file, rust) in [
        ("proto/cri/v1", "api.proto", "src/api/cri.rs"),
        ("proto/tape/v1", "tape.proto", "src/shell/tape/proto.rs"),
    ] {
        let dir = repo.join(proto);
        if !dir.join(file).exists() {
            continue;
        }
        let out = tempdir()?;
        let fds = protox::compile([file], [&dir])?;
        let package = fds.file[0].package().to_owned();
        let mut config = prost_build::Config::new();
        config
            .btree_map(["."]) // map order must be the same in every run
            .disable_comments(["."])
            .out_dir(&out);
        for message in shown(&fds.file[0]) {
            // A oneof inside of the message gets the first too.
            config.type_attribute(&message, "#[derive(::serde::Serialize, ::serde::Deserialize)]");
            config.message_attribute(&message, "#[serde(default)]");
        }
        config.compile_fds(fds)?;
        let text = std::fs::read_to_string(out.join(format!("{package}.rs")))?;
        let head = format!("// Made by `make proto` from {proto}/{file}. Do not edit.\n");
        std::fs::create_dir_all(repo.join(rust).parent().unwrap())?;
        std::fs::write(repo.join(rust), head + &text)?;
        println!("{rust}");
    }
    Ok(())
}

/// The full names of the messages of the calls in `SHOWN`, and of all messages inside of them.
fn shown(file: &FileDescriptorProto) -> BTreeSet<String> {
    let mut all = Vec::new();
    for message in &file.message_type {
        flatten(&format!(".{}", file.package()), message, &mut all);
    }
    let methods = file.service.iter().flat_map(|service| &service.method);
    let mut open: Vec<String> = methods
        .filter(|method| SHOWN.contains(&method.name()))
        .flat_map(|method| [method.input_type().to_owned(), method.output_type().to_owned()])
        .collect();
    let mut found = BTreeSet::new();
    while let Some(name) = open.pop() {
        let Some((_, message)) = all.iter().find(|(full, _)| *full == name) else { continue };
        if message.options.as_ref().is_some_and(|options| options.map_entry()) {
            // Maps become BTreeMap; their values may be messages.
        } else if !found.insert(name) {
            continue;
        }
        let inner = message.field.iter().filter(|field| field.r#type() == Type::Message);
        open.extend(inner.map(|field| field.type_name().to_owned()));
    }
    found
}

fn flatten<'a>(
    scope: &str,
    message: &'a DescriptorProto,
    all: &mut Vec<(String, &'a DescriptorProto)>,
) {
    let name = format!("{scope}.{}", message.name());
    for nested in &message.nested_type {
        flatten(&name, nested, all);
    }
    all.push((name, message));
}

fn tempdir() -> std::io::Result<std::path::PathBuf> {
    let dir = std::env::temp_dir().join(format!("protogen-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}
