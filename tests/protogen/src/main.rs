//! `protogen REPO`: proto/*.proto to the committed Rust files, one file an API.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The CRI calls whose messages a tape shows by field and lets edit.
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
        if package == "runtime.v1" {
            let told = Told::of(&fds.file[0]);
            std::fs::write(repo.join("src/shell/tape/cri.txt"), told.text())?;
        }
        prost_build::Config::new()
            .btree_map(["."]) // map order must be the same in every run
            .disable_comments(["."])
            .out_dir(&out)
            .compile_fds(fds)?;
        let text = std::fs::read_to_string(out.join(format!("{package}.rs")))?;
        let head = format!("// Made by `make proto` from {proto}/{file}. Do not edit.\n");
        std::fs::create_dir_all(repo.join(rust).parent().unwrap())?;
        std::fs::write(repo.join(rust), head + &text)?;
        println!("{rust}");
    }
    Ok(())
}

/// What src/shell/tape/cri.rs reads: the calls in `SHOWN` and the fields of their messages, a line each.
struct Told<'a> {
    file: &'a FileDescriptorProto,
    messages: BTreeMap<String, &'a DescriptorProto>,
    enums: BTreeMap<String, &'a EnumDescriptorProto>,
}

impl<'a> Told<'a> {
    fn of(file: &'a FileDescriptorProto) -> Told<'a> {
        let mut told = Told { file, messages: BTreeMap::new(), enums: BTreeMap::new() };
        let scope = format!(".{}", file.package());
        told.enums.extend(file.enum_type.iter().map(|it| (format!("{scope}.{}", it.name()), it)));
        for message in &file.message_type {
            told.flatten(&scope, message);
        }
        told
    }

    fn flatten(&mut self, scope: &str, message: &'a DescriptorProto) {
        let name = format!("{scope}.{}", message.name());
        for nested in &message.nested_type {
            self.flatten(&name, nested);
        }
        let enums = message.enum_type.iter().map(|it| (format!("{name}.{}", it.name()), it));
        self.enums.extend(enums);
        self.messages.insert(name, message);
    }

    fn text(&self) -> String {
        let mut text =
            "# Made by `make proto` from proto/cri/v1/api.proto. Do not edit.\n".to_owned();
        let mut open = Vec::new();
        let mut enums = BTreeSet::new();
        for method in self.file.service.iter().flat_map(|service| &service.method) {
            if SHOWN.contains(&method.name()) {
                let (input, output) = (method.input_type(), method.output_type());
                let line = format!("rpc {} {} {}\n", method.name(), short(input), short(output));
                text.push_str(&line);
                open.extend([input, output]);
            }
        }
        let mut found = BTreeMap::new();
        while let Some(name) = open.pop() {
            if found.contains_key(name) {
                continue;
            }
            let mut lines = format!("message {}\n", short(name));
            for field in &self.messages[name].field {
                let value = self.value_of(field);
                let kind = match (self.entry(field), field.label()) {
                    (Some(_), _) => format!("map {}", kind(value)),
                    (None, Label::Repeated) => format!("repeated {}", kind(value)),
                    (None, _) => kind(value),
                };
                lines.push_str(&format!(" {} {} {kind}\n", field.number(), field.name()));
                match value.r#type() {
                    Type::Message => open.push(value.type_name()),
                    Type::Enum => {
                        enums.insert(value.type_name());
                    }
                    _ => {}
                }
            }
            found.insert(name, lines);
        }
        text.extend(found.into_values());
        for name in enums {
            text.push_str(&format!("enum {}\n", short(name)));
            for value in &self.enums[name].value {
                text.push_str(&format!(" {} {}\n", value.number(), value.name()));
            }
        }
        text
    }

    /// The message that a map is made of.
    fn entry(&self, field: &FieldDescriptorProto) -> Option<&'a DescriptorProto> {
        let message = self.messages.get(field.type_name())?;
        message.options.as_ref().is_some_and(|options| options.map_entry()).then_some(*message)
    }

    /// The field itself, or of a map that of its values; keys are strings throughout.
    fn value_of<'b>(&'b self, field: &'b FieldDescriptorProto) -> &'b FieldDescriptorProto {
        let Some(entry) = self.entry(field) else { return field };
        assert_eq!(entry.field[0].r#type(), Type::String, "{}", field.name());
        &entry.field[1]
    }
}

fn short(name: &str) -> &str {
    name.strip_prefix(".runtime.v1.").expect("all of it is CRI")
}

fn kind(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message => short(field.type_name()).into(),
        Type::Enum => format!("={}", short(field.type_name())),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

fn tempdir() -> std::io::Result<std::path::PathBuf> {
    let dir = std::env::temp_dir().join(format!("protogen-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}
