//! Secrets put into a request on its way out: those of a container's command and variables into the one that makes it,
//! a token into the one that reviews it.

use super::keyring;
use crate::shell::vault::{Opened, Vault};
use prost::Message;
use serde_json::Value;
use steplet_api::cri::{CreateContainerRequest, PullImageRequest};
use steplet_core::effect::{ApiCall, Place, Rpc};
use steplet_core::event::RpcError;

/// No text of a container grows beyond this, whatever its secrets are; the kernel takes an eighth of it.
const TEXT_MAX: usize = 1 << 20;

/// Errors: `DATA_LOSS` when a secret is not in the vault, else why the request cannot be made; without a word of the
/// secrets.
pub fn unseal(rpc: Rpc, vault: &Vault) -> Result<Rpc, RpcError> {
    if rpc.sealed.is_empty() {
        return Ok(rpc);
    }
    let parts = rpc.sealed.iter().flat_map(|text| &text.parts);
    let opened = Opened::of(parts, vault)
        .map_err(|lost| RpcError { code: RpcError::DATA_LOSS, message: lost.to_string() })?;
    let wrong = |message| RpcError { code: RpcError::INVALID_ARGUMENT, message };
    match rpc.sealed.iter().any(|text| text.place == Place::Login) {
        true => log_in(rpc, &opened).map_err(wrong),
        false => put_in(rpc, &opened).map_err(wrong),
    }
}

fn log_in(mut rpc: Rpc, opened: &Opened) -> Result<Rpc, String> {
    let mut request = PullImageRequest::decode(&*rpc.body).map_err(|e| e.to_string())?;
    let sealed = std::mem::take(&mut rpc.sealed);
    let parts = sealed.iter().flat_map(|text| &text.parts);
    let configs = parts.map(|part| opened.content(part)).collect::<Result<Vec<_>, _>>()?;
    let image = request.image.as_ref().map_or("", |image| &image.image);
    request.auth = keyring::login(image, &configs);
    rpc.body = request.encode_to_vec().into();
    Ok(rpc)
}

fn put_in(mut rpc: Rpc, opened: &Opened) -> Result<Rpc, String> {
    let mut request = CreateContainerRequest::decode(&*rpc.body).map_err(|e| e.to_string())?;
    let config = request.config.get_or_insert_default();
    for sealed in std::mem::take(&mut rpc.sealed) {
        let mut bytes = Vec::new();
        for part in &sealed.parts {
            bytes.append(&mut opened.content(part)?);
            if bytes.len() > TEXT_MAX {
                return Err(format!("{:?} grows beyond {TEXT_MAX} bytes", sealed.place));
            }
        }
        let nowhere = || format!("the request has no {:?}", sealed.place);
        let (list, index) = match &sealed.place {
            Place::Env(name) => {
                let variable = config.envs.iter_mut().find(|variable| variable.key == *name);
                variable.ok_or_else(nowhere)?.value = bytes;
                continue;
            }
            Place::Command(index) => (&mut config.command, *index),
            Place::Arg(index) => (&mut config.args, *index),
            Place::Login => return Err("no container logs in".into()),
        };
        let text = String::from_utf8(bytes).map_err(|_| format!("{:?}: not UTF-8", sealed.place));
        *list.get_mut(index as usize).ok_or_else(nowhere)? = text?;
    }
    rpc.body = request.encode_to_vec().into();
    Ok(rpc)
}

/// Errors: why the request cannot be made, without a word of the secret.
pub fn unseal_body(mut call: ApiCall, vault: &Vault) -> Result<ApiCall, String> {
    let Some((place, seal)) = call.secret.take() else { return Ok(call) };
    let secret = vault.open(seal).map_err(|lost| lost.to_string())?;
    let mut body: Value = serde_json::from_slice(&call.body).map_err(|e| e.to_string())?;
    let slot = body.pointer_mut(&place).ok_or_else(|| format!("the body has no {place}"))?;
    *slot = Value::String(secret.expose().to_owned());
    call.body = serde_json::to_vec(&body).map_err(|e| e.to_string())?.into();
    Ok(call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use steplet_api::cri::{ContainerConfig, KeyValue};
    use steplet_core::effect::{Content, Peer, SealedText};

    fn request(command: &str, value: &[u8]) -> Bytes {
        let envs = vec![KeyValue { key: "PASSWORD".into(), value: value.into() }];
        let command = vec!["run".into(), command.into()];
        let config = ContainerConfig { envs, command, ..Default::default() };
        CreateContainerRequest { config: Some(config), ..Default::default() }.encode_to_vec().into()
    }

    fn rpc(sealed: Vec<SealedText>) -> Rpc {
        let (peer, path, body) = (Peer::Runtime, "/CreateContainer".into(), request("", b""));
        Rpc { peer, path, body, within: None, same_as_last: false, sealed }
    }

    #[test]
    fn secrets_go_to_their_places() {
        let mut vault = Vault::default();
        let (coded, not_text) = (vault.seal("czNjcmV0"), vault.seal("/w=="));
        let text = |place, parts| SealedText { place, parts };
        let parts = || vec![Content::Plain("--p=".into()), Content::Decoded(coded)];
        let env = || Place::Env("PASSWORD".into());
        let both = [text(env(), vec![Content::Decoded(coded)]), text(Place::Command(1), parts())];
        let done = unseal(rpc(both.into()), &vault).unwrap();
        assert_eq!((done.body, done.sealed.len()), (request("--p=s3cret", b"s3cret"), 0));
        assert_eq!(unseal(rpc(vec![]), &vault).unwrap().body, request("", b""));
        let bytes = unseal(rpc(vec![text(env(), vec![Content::Decoded(not_text)])]), &vault);
        assert_eq!(bytes.unwrap().body, request("", b"\xff"));
        let fails = |place, parts| {
            let error = unseal(rpc(vec![text(place, parts)]), &vault).unwrap_err();
            assert!(!error.message.contains("s3cret"), "{error:?}");
            error.code
        };
        let check = |place, parts| assert_eq!(fails(place, parts), RpcError::INVALID_ARGUMENT);
        check(Place::Command(1), vec![Content::Decoded(not_text)]);
        check(Place::Command(2), parts());
        check(Place::Arg(0), parts());
        check(Place::Env("OTHER".into()), parts());
        let lost = vec![Content::Sealed(steplet_core::sealed::Sealed::numbered(9))];
        assert_eq!(fails(env(), lost), RpcError::DATA_LOSS);
        check(env(), vec![Content::Plain(vec![0; TEXT_MAX + 1].into())]);
    }

    #[test]
    fn pulls_log_in() {
        use steplet_api::cri::ImageSpec;
        let mut vault = Vault::default();
        // {"auths":{"r.io":{"username":"me","password":"s3cret"}}}
        let config = "eyJhdXRocyI6eyJyLmlvIjp7InVzZXJuYW1lIjoibWUiLCJwYXNzd29yZCI6InMzY3JldCJ9fX0=";
        let part = Content::Decoded(vault.seal(config));
        let check = |image: &str, want: Option<(&str, &str)>| {
            let spec = Some(ImageSpec { image: image.into(), ..Default::default() });
            let body = PullImageRequest { image: spec, ..Default::default() }.encode_to_vec();
            let sealed = vec![SealedText { place: Place::Login, parts: vec![part.clone()] }];
            let done = unseal(Rpc { body: body.into(), ..rpc(sealed) }, &vault).unwrap();
            let auth = PullImageRequest::decode(&*done.body).unwrap().auth;
            let auth = auth.as_ref().map(|auth| (&*auth.username, &*auth.password));
            assert_eq!(auth, want);
        };
        check("r.io/app:1", Some(("me", "s3cret")));
        check("other.io/app:1", None);
    }

    #[test]
    fn tokens_enter_the_body_of_a_review() {
        use steplet_core::effect::{Lane, Verb};
        use steplet_core::sealed::Sealed;
        use steplet_core::time::Span;
        let mut vault = Vault::default();
        let seal = vault.seal_of_visitor("to\"ken");
        let check = |place: &'static str, seal: Sealed, want: Result<&str, &str>| {
            let call = ApiCall {
                verb: Verb::Post,
                path: "/tokenreviews".into(),
                body: Bytes::from_static(br#"{"spec":{"token":""}}"#),
                within: Span::from_secs(1),
                lane: Lane::Main,
                seals: false,
                secret: Some((place.into(), seal)),
            };
            let got = unseal_body(call, &vault);
            let got = got.map(|call| String::from_utf8(call.body.to_vec()).expect("JSON"));
            assert_eq!(got.as_deref().map_err(String::as_str), want);
        };
        check("/spec/token", seal, Ok(r#"{"spec":{"token":"to\"ken"}}"#));
        check("/spec/other", seal, Err("the body has no /spec/other"));
        let lost = "the secret behind sealed:9 is not in this process";
        check("/spec/token", Sealed::numbered(9), Err(lost));
    }
}
