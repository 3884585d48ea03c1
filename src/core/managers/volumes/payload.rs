//! What stands in the configMap, secret, downwardAPI and projected volumes of a pod: pure functions of the pod and of
//! the objects at hand.
//!
//! Upstream: MakePayload in pkg/volume/configmap and secret, collectData in pkg/volume/projected, CollectData in
//! pkg/volume/downwardapi, validatePath in pkg/volume/util/atomic_writer.go (v1.36). Errors are in their words, since
//! they are shown in events.

use super::VolumesFacts;
use super::objects::{Key, Missing};
use super::tokens::TokenKey;
use crate::effect::{Content, VolumeFile};
use crate::event::Machine;
use crate::managers::containers::ConfigError;
use crate::managers::containers::env::{metadata_field, resource_value};
use crate::managers::containers::services::ServicesFacts;
use crate::managers::containers::volumes::{all_containers, is_used};
use crate::sealed::Sealed;
use crate::settings::Settings;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use steplet_api::cluster::{ConfigMap, Secret};
use steplet_api::container::EnvVarSource;
use steplet_api::pod::Pod;
use steplet_api::volume::{
    DownwardApiVolumeFile, KeyToPath, ProjectedVolumeSource, ServiceAccountTokenProjection, Volume,
    VolumeProjection,
};

const MODE_DEFAULT: i32 = 0o644;
/// Of a token that a user or a group is to read.
const TOKEN_MODE: i32 = 0o600;
const TOKEN_SECONDS: i64 = 3600;
const PATH_MAX: usize = 4096;
const NAME_MAX: usize = 255;
/// Bytes of one volume whose content is known here: many times what one object can have.
const VOLUME_BYTES_MAX: usize = 16 << 20;
const FILES_MAX: usize = 10_000;

/// What a payload is made from, beside the pod.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    pub volumes: &'a VolumesFacts,
    pub settings: &'a Settings,
    pub machine: &'a Machine,
    pub services: &'a ServicesFacts,
}

/// What a pod needs of the API server before it can run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    pub objects: BTreeSet<Key>,
    pub tokens: BTreeSet<TokenKey>,
}

impl Wants {
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.tokens.is_empty()
    }

    /// Of volumes that are used, of variables, and for pulls.
    pub fn of(pod: &Pod) -> Wants {
        let mut wants = Wants::default();
        let namespace = &pod.metadata.namespace;
        let (map, secret) = (
            |name: &str| Key::config_map(namespace, name),
            |name: &str| Key::secret(namespace, name),
        );
        for volume in pod.spec.volumes.iter().filter(|volume| is_used(pod, volume)) {
            wants.objects.extend(volume.config_map.iter().map(|source| map(&source.name)));
            wants.objects.extend(volume.secret.iter().map(|source| secret(&source.secret_name)));
            for source in volume.projected.iter().flat_map(|projected| &projected.sources) {
                wants.objects.extend(source.config_map.iter().map(|source| map(&source.name)));
                wants.objects.extend(source.secret.iter().map(|source| secret(&source.name)));
                let token = source.service_account_token.iter();
                wants.tokens.extend(token.map(|source| token_key(pod, source)));
            }
        }
        let pulls = pod.spec.image_pull_secrets.iter();
        wants.objects.extend(pulls.map(|reference| secret(&reference.name)));
        for container in all_containers(pod) {
            for source in &container.env_from {
                wants.objects.extend(source.config_map_ref.iter().map(|it| map(&it.name)));
                wants.objects.extend(source.secret_ref.iter().map(|it| secret(&it.name)));
            }
            let sources = container.env.iter().filter_map(|it| it.value_from.as_deref());
            for EnvVarSource { config_map_key_ref, secret_key_ref, .. } in sources {
                wants.objects.extend(config_map_key_ref.iter().map(|it| map(&it.name)));
                wants.objects.extend(secret_key_ref.iter().map(|it| secret(&it.name)));
            }
        }
        wants
    }
}

/// The kinds of volumes whose content is made here.
pub fn is_made(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// The files of a volume of which `is_made` is true.
pub fn files(
    pod: &Pod,
    volume: &Volume,
    given: &Given<'_>,
) -> Result<Vec<VolumeFile>, ConfigError> {
    let mut payload = Payload { pod, given, mode: MODE_DEFAULT, files: BTreeMap::new() };
    if let Some(source) = &volume.config_map {
        let optional = source.optional == Some(true);
        payload.mode = source.default_mode.unwrap_or(MODE_DEFAULT);
        payload.config_map(&source.name, &source.items, optional)?;
    } else if let Some(source) = &volume.secret {
        let optional = source.optional == Some(true);
        payload.mode = source.default_mode.unwrap_or(MODE_DEFAULT);
        payload.secret(&source.secret_name, &source.items, optional)?;
    } else if let Some(source) = &volume.downward_api {
        payload.mode = source.default_mode.unwrap_or(MODE_DEFAULT);
        payload.downward(&source.items)?;
    } else if let Some(source) = &volume.projected {
        payload.projected(source)?;
    }
    payload.bounded()
}

struct Payload<'a> {
    pod: &'a Pod,
    given: &'a Given<'a>,
    /// `defaultMode`
    mode: i32,
    /// Of two files with one path the later counts.
    files: BTreeMap<String, VolumeFile>,
}

impl Payload<'_> {
    fn config_map(
        &mut self,
        name: &str,
        items: &[KeyToPath],
        optional: bool,
    ) -> Result<(), ConfigError> {
        let none = ConfigMap::default();
        let objects = self.given.volumes.objects();
        let map = match objects.config_map(&self.pod.metadata.namespace, name) {
            Err(Missing::Absent(_)) if optional => &none,
            other => other.map_err(Missing::into_error)?,
        };
        let value = |key: &str| -> Option<Result<Content, ConfigError>> {
            if let Some(text) = map.data.get(key) {
                return Some(Ok(Content::Plain(Bytes::copy_from_slice(text.as_bytes()))));
            }
            let coded = map.binary_data.get(key)?;
            let wrong = || ConfigError(format!("the value of key {key:?} is not base64"));
            Some(STANDARD.decode(&**coded).map(|it| Content::Plain(it.into())).map_err(|_| wrong()))
        };
        let keys = map.data.keys().chain(map.binary_data.keys());
        self.keys(keys, items, optional, value, |key| {
            format!("configmap references non-existent config key: {key}")
        })
    }

    fn secret(
        &mut self,
        name: &str,
        items: &[KeyToPath],
        optional: bool,
    ) -> Result<(), ConfigError> {
        let none = Secret::default();
        let objects = self.given.volumes.objects();
        let secret = match objects.secret(&self.pod.metadata.namespace, name) {
            Err(Missing::Absent(_)) if optional => &none,
            other => other.map_err(Missing::into_error)?,
        };
        let value = |key: &str| {
            let number = *secret.data.get(key)?;
            Some(Ok(Content::Decoded(Sealed::numbered(number))))
        };
        self.keys(secret.data.keys(), items, optional, value, |key| {
            format!("references non-existent secret key: {key}")
        })
    }

    /// All keys, or those that `items` names.
    fn keys<'k>(
        &mut self,
        all: impl Iterator<Item = &'k Box<str>>,
        items: &[KeyToPath],
        optional: bool,
        value: impl Fn(&str) -> Option<Result<Content, ConfigError>>,
        missing: impl Fn(&str) -> String,
    ) -> Result<(), ConfigError> {
        if items.is_empty() {
            for key in all {
                if let Some(content) = value(key) {
                    self.add(key, self.mode, content?)?;
                }
            }
        }
        for item in items {
            match value(&item.key) {
                Some(content) => {
                    self.add(&item.path, item.mode.unwrap_or(self.mode), content?)?;
                }
                None if optional => {}
                None => return Err(ConfigError(missing(&item.key))),
            }
        }
        Ok(())
    }

    fn downward(&mut self, items: &[DownwardApiVolumeFile]) -> Result<(), ConfigError> {
        let Given { settings, machine, .. } = *self.given;
        let mut wrong = Vec::new();
        for item in items {
            let value = match (&item.field_ref, &item.resource_field_ref) {
                (Some(field), _) => metadata_field(self.pod, &field.field_path),
                (None, Some(field)) => resource_value(self.pod, None, field, settings, machine),
                (None, None) => Ok(String::new()),
            };
            match value {
                Ok(value) => {
                    let content = Content::Plain(value.into());
                    self.add(&item.path, item.mode.unwrap_or(self.mode), content)?;
                }
                Err(error) => wrong.push(error.0),
            }
        }
        aggregate(wrong)
    }

    fn projected(&mut self, source: &ProjectedVolumeSource) -> Result<(), ConfigError> {
        self.mode = source.default_mode.unwrap_or(MODE_DEFAULT);
        let mut wrong = Vec::new();
        for source in &source.sources {
            if let Err(error) = self.projection(source) {
                wrong.push(error.0);
            }
        }
        aggregate(wrong)
    }

    fn projection(&mut self, source: &VolumeProjection) -> Result<(), ConfigError> {
        if let Some(secret) = &source.secret {
            return self.secret(&secret.name, &secret.items, secret.optional == Some(true));
        }
        if let Some(map) = &source.config_map {
            return self.config_map(&map.name, &map.items, map.optional == Some(true));
        }
        if let Some(downward) = &source.downward_api {
            return self.downward(&downward.items);
        }
        if let Some(token) = &source.service_account_token {
            return self.token(token);
        }
        let kind = match source.cluster_trust_bundle {
            Some(_) => "clusterTrustBundle",
            None if source.pod_certificate.is_some() => "podCertificate",
            None => return Ok(()),
        };
        Err(ConfigError(format!("projected source {kind} is not supported yet")))
    }

    fn token(&mut self, source: &ServiceAccountTokenProjection) -> Result<(), ConfigError> {
        let key = token_key(self.pod, source);
        let seal = self.given.volumes.tokens().token(&key).map_err(ConfigError)?;
        let user = file_user(self.pod);
        let shared = user.is_some() || fs_group(self.pod).is_some();
        let mode = if shared { TOKEN_MODE } else { self.mode };
        let path = self.add(&source.path, mode, Content::Sealed(seal))?;
        if let Some(file) = self.files.get_mut(&path) {
            file.uid = user;
        }
        Ok(())
    }

    fn add(&mut self, path: &str, mode: i32, content: Content) -> Result<String, ConfigError> {
        let path = clean(path).map_err(ConfigError)?;
        let mode = u32::try_from(mode).unwrap_or_default() & 0o7777;
        let file = VolumeFile { path: path.clone(), mode, uid: None, content };
        self.files.insert(path.clone(), file);
        Ok(path)
    }

    fn bounded(self) -> Result<Vec<VolumeFile>, ConfigError> {
        let bytes = self.files.values().map(|file| match &file.content {
            Content::Plain(bytes) => bytes.len(),
            Content::Sealed(_) | Content::Decoded(_) => 0,
        });
        if bytes.sum::<usize>() > VOLUME_BYTES_MAX || self.files.len() > FILES_MAX {
            let text = format!("more than {VOLUME_BYTES_MAX} bytes or {FILES_MAX} files");
            return Err(ConfigError(text));
        }
        Ok(self.files.into_values().collect())
    }
}

/// The words of several errors, as utilerrors.NewAggregate has them.
fn aggregate(mut errors: Vec<String>) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    errors.retain(|error| seen.insert(error.clone()));
    match &*errors {
        [] => Ok(()),
        [one] => Err(ConfigError(one.clone())),
        many => Err(ConfigError(format!("[{}]", many.join(", ")))),
    }
}

/// A path below the volume without doubled slashes and dots. Errors: why it is none.
fn clean(path: &str) -> Result<String, String> {
    let wrong = |what: &str| Err(format!("invalid path: {what}"));
    if path.is_empty() {
        return wrong("must not be empty");
    }
    if path.starts_with('/') {
        return wrong(&format!("must be relative path: {path}"));
    }
    if path.len() > PATH_MAX {
        return wrong(&format!("must be less than or equal to {PATH_MAX} characters"));
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return wrong(&format!("must not contain '..': {path}"));
    }
    if parts.iter().any(|part| part.len() > NAME_MAX) {
        return wrong(&format!("filenames must be less than or equal to {NAME_MAX} characters"));
    }
    match parts.first() {
        Some(first) if first.starts_with("..") => {
            wrong(&format!("must not start with '..': {path}"))
        }
        Some(_) => Ok(parts.join("/")),
        None => wrong("must not be empty"),
    }
}

/// By what a token is asked for and found again.
fn token_key(pod: &Pod, source: &ServiceAccountTokenProjection) -> TokenKey {
    TokenKey {
        namespace: pod.metadata.namespace.clone(),
        account: pod.spec.service_account_name.clone(),
        audience: source.audience.clone(),
        seconds: source.expiration_seconds.unwrap_or(TOKEN_SECONDS),
        pod: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
    }
}

/// What a pod's pull secrets hold, and the names of those that are not at hand.
///
/// Upstream: pkg/credentialprovider/secrets.
pub fn pull_configs<'a>(pod: &'a Pod, volumes: &VolumesFacts) -> (Vec<Content>, Vec<&'a str>) {
    let (mut configs, mut missing) = (Vec::new(), Vec::new());
    for reference in &pod.spec.image_pull_secrets {
        let Ok(secret) = volumes.objects().secret(&pod.metadata.namespace, &reference.name) else {
            missing.push(&*reference.name);
            continue;
        };
        let key = match &*secret.type_ {
            "kubernetes.io/dockerconfigjson" => ".dockerconfigjson",
            "kubernetes.io/dockercfg" => ".dockercfg",
            _ => continue,
        };
        let seal = secret.data.get(key);
        configs.extend(seal.map(|number| Content::Decoded(Sealed::numbered(*number))));
    }
    (configs, missing)
}

pub fn fs_group(pod: &Pod) -> Option<i64> {
    pod.spec.security_context.as_deref().and_then(|context| context.fs_group)
}

/// The user that all containers run as, if it is one (FsUserFrom in pkg/volume/util).
fn file_user(pod: &Pod) -> Option<i64> {
    let of_pod = pod.spec.security_context.as_deref().and_then(|context| context.run_as_user);
    let mut users = all_containers(pod).map(|container| {
        let own = container.security_context.as_deref().and_then(|context| context.run_as_user);
        own.or(of_pod)
    });
    let first = users.next()??;
    users.all(|user| user == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::sample;
    use crate::managers::volumes::objects::ObjectsFacts;
    use crate::managers::volumes::tokens::TokensFacts;

    const MAPS: [&str; 2] = [
        r#"{"metadata":{"name":"m"},"data":{"a":"1","b":"2"},"binaryData":{"bin":"/w=="}}"#,
        r#"{"metadata":{"name":"odd"},"binaryData":{"x":"no base64"}}"#,
    ];
    const SECRETS: [&str; 1] = [r#"{"metadata":{"name":"s"},"data":{"p":7,"a":8}}"#];

    fn token(audience: &str, seconds: i64) -> TokenKey {
        let [namespace, account, pod, uid] = ["ns", "sa", "p", "u"].map(Box::from);
        TokenKey { namespace, account, audience: audience.into(), seconds, pod, uid }
    }

    /// The files of volume `v` of a pod as `path mode content`, or the error.
    fn of(volume: &str, spec: &str) -> Result<Vec<String>, String> {
        let gone = [Key::config_map("ns", "gone"), Key::secret("ns", "gone")];
        let objects = ObjectsFacts::of(&MAPS, &SECRETS, &gone);
        let tokens = TokensFacts::of(token("vault", 600), Sealed::numbered(9));
        let volumes = &VolumesFacts::of(objects, tokens);
        let pod = sample::pod(&format!(
            r#"{{"serviceAccountName":"sa",{spec}"volumes":[{{"name":"v",{volume}}}],
            "containers":[{{"name":"c","volumeMounts":[{{"name":"v","mountPath":"/v"}}],
                "resources":{{"limits":{{"memory":"64Mi"}}}}}}]}}"#
        ));
        let (settings, machine) = (&sample::settings(), &sample::machine());
        let files = files(
            &pod,
            &pod.spec.volumes[0],
            &Given { volumes, settings, machine, services: &ServicesFacts::default() },
        );
        let show = |file: VolumeFile| {
            let content = match file.content {
                Content::Plain(bytes) => format!("{bytes:?}"),
                sealed => format!("{sealed:?}"),
            };
            let owner = file.uid.map(|uid| format!(" of {uid}")).unwrap_or_default();
            format!("{} {:o} {content}{owner}", file.path, file.mode)
        };
        files.map(|files| files.into_iter().map(show).collect()).map_err(|e| e.0)
    }

    fn check(volume: &str, want: Result<&[&str], &str>) {
        check_in("", volume, want);
    }

    fn check_in(spec: &str, volume: &str, want: Result<&[&str], &str>) {
        let want = want.map(|want| want.iter().map(|it| String::from(*it)).collect());
        assert_eq!(of(volume, spec), want.map_err(String::from), "{volume}");
    }

    #[test]
    fn config_maps() {
        check(
            r#""configMap":{"name":"m"}"#,
            Ok(&[r#"a 644 b"1""#, r#"b 644 b"2""#, r#"bin 644 b"\xff""#]),
        );
        check(
            r#""configMap":{"name":"m","defaultMode":256,"items":[{"key":"a","path":"x/./y//z"},
                {"key":"bin","path":"k","mode":511}]}"#,
            Ok(&[r#"k 777 b"\xff""#, r#"x/y/z 400 b"1""#]),
        );
        let missing = r#""configMap":{"name":"m","items":[{"key":"a","path":"a"},
            {"key":"zz","path":"z"}]"#;
        let why = "configmap references non-existent config key: zz";
        check(&format!("{missing}}}"), Err(why));
        check(&format!(r#"{missing},"optional":true}}"#), Ok(&[r#"a 644 b"1""#]));
        check(r#""configMap":{"name":"gone"}"#, Err(r#"configmap "gone" not found"#));
        check(r#""configMap":{"name":"gone","optional":true}"#, Ok(&[]));
        // Nobody knows yet: optional or not, it is waited for.
        let late = "failed to sync configmap cache: timed out waiting for the condition";
        check(r#""configMap":{"name":"late","optional":true}"#, Err(late));
        check(r#""configMap":{"name":"odd"}"#, Err(r#"the value of key "x" is not base64"#));
    }

    #[test]
    fn secrets() {
        check(
            r#""secret":{"secretName":"s","defaultMode":384}"#,
            Ok(&["a 600 Decoded(sealed:8)", "p 600 Decoded(sealed:7)"]),
        );
        check(
            r#""secret":{"secretName":"s","items":[{"key":"z","path":"z"}]}"#,
            Err("references non-existent secret key: z"),
        );
        check(r#""secret":{"secretName":"gone"}"#, Err(r#"secret "gone" not found"#));
        check(r#""secret":{"secretName":"gone","optional":true}"#, Ok(&[]));
    }

    #[test]
    fn paths_stay_in_the_volume() {
        let check = |path: &str, want| {
            let item = format!(r#"{{"key":"a","path":{path:?}}}"#);
            let got = of(&format!(r#""configMap":{{"name":"m","items":[{item}]}}"#), "");
            assert_eq!(got.unwrap_err(), want, "{path}");
        };
        check("", "invalid path: must not be empty");
        check(".", "invalid path: must not be empty");
        check("/etc/passwd", "invalid path: must be relative path: /etc/passwd");
        check("a/../b", "invalid path: must not contain '..': a/../b");
        check("..data", "invalid path: must not start with '..': ..data");
        check(
            &"n".repeat(256),
            "invalid path: filenames must be less than or equal to 255 characters",
        );
        check(&"n/".repeat(2049), "invalid path: must be less than or equal to 4096 characters");
    }

    #[test]
    fn fields_of_the_pod() {
        let field = |path: &str, field: &str| {
            format!(r#"{{"path":"{path}","fieldRef":{{"fieldPath":"{field}"}}}}"#)
        };
        let resource = r#"{"path":"mem","mode":256,"resourceFieldRef":{"containerName":"c",
            "resource":"limits.memory","divisor":"1Mi"}}"#;
        let items = |items: &[&str]| format!(r#""downwardAPI":{{"items":[{}]}}"#, items.join(","));
        check(
            &items(&[&field("n", "metadata.name"), resource, &field("l", "metadata.labels")]),
            Ok(&[r#"l 644 b"""#, r#"mem 400 b"64""#, r#"n 644 b"p""#]),
        );
        check(
            &items(&[
                &field("a", "status.podIP"),
                &field("b", "spec.x"),
                &field("c", "status.podIP"),
            ]),
            Err("[unsupported fieldPath: status.podIP, unsupported fieldPath: spec.x]"),
        );
        check(&items(&[&resource.replace("\"c\"", "\"x\"")]), Err("container x not found"));
    }

    #[test]
    fn several_sources_in_one_directory() {
        let sources = |sources: &str| format!(r#""projected":{{"sources":[{sources}]}}"#);
        const TOKEN: &str = r#"{"serviceAccountToken":{"path":"token","audience":"vault",
            "expirationSeconds":600}}"#;
        // Of two files with one path the later counts.
        let all = sources(&format!(
            r#"{{"secret":{{"name":"s"}}}},{TOKEN},{{"configMap":{{"name":"m",
            "items":[{{"key":"a","path":"a"}}]}}}},{{"downwardAPI":{{"items":[
            {{"path":"ns","fieldRef":{{"fieldPath":"metadata.namespace"}}}}]}}}},
            {{"configMap":{{"name":"gone","optional":true}}}}"#
        ));
        let token = "token 644 Sealed(sealed:9)";
        check(&all, Ok(&[r#"a 644 b"1""#, r#"ns 644 b"ns""#, "p 644 Decoded(sealed:7)", token]));
        check(
            &sources(
                r#"{"configMap":{"name":"gone"}},{"serviceAccountToken":{"path":"t"}},
                {"configMap":{"name":"gone"}},{"podCertificate":{}}"#,
            ),
            Err("[configmap \"gone\" not found, failed to fetch token: no answer yet, projected \
                 source podCertificate is not supported yet]"),
        );
        let check_token = |spec, want: &str| check_in(spec, &sources(TOKEN), Ok(&[want]));
        check_token(r#""securityContext":{"fsGroup":7},"#, "token 600 Sealed(sealed:9)");
        check_token(r#""securityContext":{"runAsUser":5},"#, "token 600 Sealed(sealed:9) of 5");
        let other = r#""securityContext":{"runAsUser":5},"initContainers":[
            {"name":"i","securityContext":{"runAsUser":6}}],"#;
        check_token(other, token);
        assert_eq!(self::token("", 3600).seconds, TOKEN_SECONDS);
    }

    #[test]
    fn logins_for_pulls() {
        let secrets = [
            r#"{"metadata":{"name":"new"},"type":"kubernetes.io/dockerconfigjson",
                "data":{".dockerconfigjson":3}}"#,
            r#"{"metadata":{"name":"old"},"type":"kubernetes.io/dockercfg",
                "data":{".dockercfg":4}}"#,
            r#"{"metadata":{"name":"odd"},"data":{".dockercfg":5}}"#,
        ];
        let volumes = VolumesFacts::of(ObjectsFacts::of(&[], &secrets, &[]), Default::default());
        let pod = sample::pod(
            r#"{"imagePullSecrets":[{"name":"old"},{"name":"none"},{"name":"odd"},{"name":"new"}]}"#,
        );
        let want = [4, 3].map(|number| Content::Decoded(Sealed::numbered(number)));
        assert_eq!(pull_configs(&pod, &volumes), (want.into(), ["none"].into()));
    }

    #[test]
    fn what_a_pod_wants() {
        let pod = sample::pod(
            r#"{"serviceAccountName":"sa","imagePullSecrets":[{"name":"s4"}],
            "volumes":[{"name":"idle","secret":{"secretName":"x"}},
            {"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"t"}},
            {"secret":{"name":"s1"}},{"configMap":{"name":"m1"}}]}},
            {"name":"w","configMap":{"name":"m2"}}],
            "initContainers":[{"name":"i","volumeMounts":[{"name":"w","mountPath":"/w"}],
            "envFrom":[{"secretRef":{"name":"s2"}},{"configMapRef":{"name":"m1"}}]}],
            "containers":[{"name":"c","volumeMounts":[{"name":"v","mountPath":"/v"}],
            "env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"s3","key":"k"}}},
            {"name":"B","valueFrom":{"configMapKeyRef":{"name":"m3","key":"k"}}}]}]}"#,
        );
        let wants = Wants::of(&pod);
        let maps = ["m1", "m2", "m3"].map(|name| Key::config_map("ns", name));
        let secrets = ["s1", "s2", "s3", "s4"].map(|name| Key::secret("ns", name));
        assert_eq!(wants.objects, maps.into_iter().chain(secrets).collect());
        assert_eq!(wants.tokens, [token("", 3600)].into());
        assert!(!wants.is_empty() && Wants::of(&sample::pod("{}")).is_empty());
    }
}
