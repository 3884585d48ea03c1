//! What a request is about: the resource, the object, and what its query asks for.

use super::refusal::Refusal;
use serde_json::Value;
use steplet_core::effect::{ApiCall, Verb};
use steplet_core::time::Span;

/// A kind of object that the server knows.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// `apiVersion` of its objects.
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    /// It has the subresource `status`.
    pub status: bool,
    /// What is posted is answered and not kept.
    pub review: bool,
}

const fn kept(
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    status: bool,
) -> Resource {
    Resource { version, plural, kind, namespaced, status, review: false }
}

const fn review(version: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource { version, plural, kind, namespaced: false, status: false, review: true }
}

pub const RESOURCES: [Resource; 18] = [
    kept("v1", "pods", "Pod", true, true),
    kept("v1", "nodes", "Node", false, true),
    kept("v1", "events", "Event", true, false),
    kept("v1", "services", "Service", true, true),
    kept("v1", "configmaps", "ConfigMap", true, false),
    kept("v1", "secrets", "Secret", true, false),
    kept("v1", "serviceaccounts", "ServiceAccount", true, false),
    kept("v1", "namespaces", "Namespace", false, true),
    kept("v1", "persistentvolumes", "PersistentVolume", false, true),
    kept("v1", "persistentvolumeclaims", "PersistentVolumeClaim", true, true),
    kept("coordination.k8s.io/v1", "leases", "Lease", true, false),
    kept("node.k8s.io/v1", "runtimeclasses", "RuntimeClass", false, false),
    kept("storage.k8s.io/v1", "csidrivers", "CSIDriver", false, false),
    kept("storage.k8s.io/v1", "csinodes", "CSINode", false, false),
    kept(
        "certificates.k8s.io/v1",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        false,
        true,
    ),
    review("authentication.k8s.io/v1", "tokenreviews", "TokenReview"),
    review("authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview"),
    review("authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
];

impl Resource {
    pub fn of_kind(kind: &str) -> Option<&'static Resource> {
        RESOURCES.iter().find(|resource| resource.kind == kind)
    }

    pub fn of_plural(plural: &str) -> Option<&'static Resource> {
        RESOURCES.iter().find(|resource| resource.plural == plural)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub resource: &'static Resource,
    /// Empty: of the whole cluster.
    pub namespace: String,
    /// Empty: the collection.
    pub name: String,
    /// `status`, `token`; empty for none.
    pub part: String,
    pub query: Query,
}

/// What of a query has a meaning here; the server leaves aside what it does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pub watch: bool,
    pub bookmarks: bool,
    pub timeout: Option<Span>,
    pub version: Option<u64>,
    pub limit: usize,
    pub page: String,
    pub fields: Vec<(Field, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Name,
    Namespace,
    NodeName,
}

impl Field {
    fn of(self, object: &Value) -> &str {
        let value = match self {
            Field::Name => &object["metadata"]["name"],
            Field::Namespace => &object["metadata"]["namespace"],
            Field::NodeName => &object["spec"]["nodeName"],
        };
        value.as_str().unwrap_or_default()
    }
}

impl Query {
    pub fn selects(&self, object: &Value) -> bool {
        self.fields.iter().all(|(field, want)| field.of(object) == want)
    }

    pub fn field(&self, field: Field) -> Option<&str> {
        self.fields.iter().find(|(of, _)| *of == field).map(|(_, want)| want.as_str())
    }

    fn parse(text: &str, resource: &Resource) -> Result<Query, Refusal> {
        let mut query = Query::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value)?;
            let number = || {
                let number = value.parse::<u64>();
                number.map_err(|_| Refusal::bad(format!("{key}={value}: no number")))
            };
            match key {
                "watch" => query.watch = value == "true" || value == "1",
                "allowWatchBookmarks" => query.bookmarks = value == "true" || value == "1",
                "timeoutSeconds" => query.timeout = Some(Span::from_secs(number()?)),
                "resourceVersion" if value.is_empty() => {}
                "resourceVersion" => query.version = Some(number()?),
                "limit" => query.limit = number()? as usize,
                "continue" => query.page = value,
                "fieldSelector" => query.fields = fields(&value, resource)?,
                // Refused rather than left aside: it would select too much.
                "labelSelector" | "sendInitialEvents" => {
                    return Err(Refusal::bad(format!("{key} is not known here")));
                }
                _ => {}
            }
        }
        Ok(query)
    }
}

fn fields(text: &str, resource: &Resource) -> Result<Vec<(Field, String)>, Refusal> {
    let field = |term: &str| {
        let (label, value) = term
            .split_once('=')
            .ok_or_else(|| Refusal::bad(format!("invalid selector: '{term}'")))?;
        let field = match label {
            // All that have an address; whoever asks leaves out those without, too.
            "spec.clusterIP!" if resource.kind == "Service" => return Ok(None),
            "metadata.name" => Field::Name,
            "metadata.namespace" if resource.namespaced => Field::Namespace,
            "spec.nodeName" if resource.kind == "Pod" => Field::NodeName,
            _ => return Err(Refusal::bad(format!("field label not supported: {label}"))),
        };
        Ok(Some((field, value.trim_start_matches('=').to_owned())))
    };
    let terms = text.split(',').filter(|term| !term.is_empty());
    terms.filter_map(|term| field(term).transpose()).collect()
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Result<String, Refusal> {
    let wrong = || Refusal::bad(format!("{text}: wrong percent-encoding"));
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [byte, more @ ..] = rest {
        rest = more;
        bytes.push(match (byte, more) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16).ok_or_else(wrong);
                rest = after;
                (digit(*high)? * 16 + digit(*low)?) as u8
            }
            (b'%', _) => return Err(wrong()),
            (b'+', _) => b' ',
            _ => *byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

impl Request {
    pub fn read(call: &ApiCall) -> Result<Request, Refusal> {
        let (path, query) = call.path.split_once('?').unwrap_or((&call.path, ""));
        let unknown = || Refusal::not_here(path);
        let (version, rest) = match path.strip_prefix("/api/v1/") {
            Some(rest) => ("v1", rest),
            None => {
                let rest = path.strip_prefix("/apis/").ok_or_else(unknown)?;
                let group = rest.match_indices('/').nth(1).ok_or_else(unknown)?.0;
                (&rest[..group], &rest[group + 1..])
            }
        };
        let parts: Vec<&str> = rest.split('/').collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(unknown());
        }
        let known = |plural: &str| {
            RESOURCES.iter().find(|known| known.version == version && known.plural == plural)
        };
        let (namespace, parts) = match parts.as_slice() {
            ["namespaces", namespace, rest @ ..]
                if rest.first().and_then(|plural| known(plural)).is_some() =>
            {
                (*namespace, rest)
            }
            parts => ("", parts),
        };
        let resource = parts.first().and_then(|plural| known(plural)).ok_or_else(unknown)?;
        let (name, part) = match &parts[1..] {
            [] => ("", ""),
            [name] => (*name, ""),
            [name, part] => (*name, *part),
            _ => return Err(unknown()),
        };
        let has_part = match part {
            "" => true,
            "status" => resource.status,
            "token" => resource.kind == "ServiceAccount",
            _ => false,
        };
        let across = namespace.is_empty();
        if !has_part || (resource.namespaced && across && !name.is_empty()) {
            return Err(unknown());
        }
        if !resource.namespaced && !across {
            return Err(unknown());
        }
        let request = Request {
            resource,
            namespace: namespace.to_owned(),
            name: decode(name)?,
            part: part.to_owned(),
            query: Query::parse(query, resource)?,
        };
        if (call.verb == Verb::Watch) != request.query.watch {
            return Err(Refusal::bad("a watch, and only a watch, asks for watch=true"));
        }
        Ok(request)
    }

    /// `pods/status`, for those who count requests.
    pub fn subject(&self) -> String {
        match self.part.as_str() {
            "" => self.resource.plural.to_owned(),
            part => format!("{}/{part}", self.resource.plural),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steplet_core::effect::Lane;

    fn read(verb: Verb, path: &str) -> Result<Request, u16> {
        let (path, within) = (path.to_owned(), Span::from_secs(1));
        let call = ApiCall {
            verb,
            path,
            body: Default::default(),
            within,
            lane: Lane::Main,
            seals: false,
            secret: None,
        };
        Request::read(&call).map_err(|refusal| refusal.code)
    }

    #[test]
    fn a_path_says_what_it_is_about() {
        let check = |path: &str, want: Result<(&str, &str, &str), u16>| {
            let found = read(Verb::Get, path);
            let found = found.as_ref().map(|r| (&*r.namespace, &*r.name, r.subject()));
            let want = want.map(|(namespace, name, subject)| (namespace, name, subject.to_owned()));
            assert_eq!(found.map_err(|code| *code), want, "{path}");
        };
        check("/api/v1/nodes/n1/status?fieldManager=x", Ok(("", "n1", "nodes/status")));
        check("/api/v1/namespaces/a/pods/web", Ok(("a", "web", "pods")));
        check("/api/v1/pods?limit=5", Ok(("", "", "pods")));
        check("/api/v1/namespaces/a", Ok(("", "a", "namespaces")));
        check(
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
            Ok(("kube-node-lease", "n1", "leases")),
        );
        check(
            "/api/v1/namespaces/a/serviceaccounts/b/token",
            Ok(("a", "b", "serviceaccounts/token")),
        );
        for path in [
            "/api/v1/leases",
            "/api/v1/pods/web",
            "/api/v1/namespaces/a/nodes/n1",
            "/api/v1/namespaces/a/pods/web/token",
            "/api/v1/namespaces//pods/web",
            "/apis/apps/v1/deployments",
            "/healthz",
        ] {
            check(path, Err(404));
        }
        check("/api/v1/pods?labelSelector=a", Err(400));
        check("/api/v1/pods?watch=true", Err(400));
        check("/api/v1/pods?resourceVersion=new", Err(400));
    }

    #[test]
    fn a_query_selects_by_field() {
        let path = "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1%2Cmetadata.namespace%3Da&\
                    resourceVersion=7&allowWatchBookmarks=true&timeoutSeconds=300";
        let query = read(Verb::Watch, path).expect("it is one").query;
        assert_eq!(query.fields.len(), 2);
        assert_eq!((query.version, query.timeout), (Some(7), Some(Span::from_secs(300))));
        let pod = |node: &str, namespace: &str| {
            let metadata = serde_json::json!({ "namespace": namespace });
            serde_json::json!({"metadata": metadata, "spec": {"nodeName": node}})
        };
        assert!(query.bookmarks && query.selects(&pod("n1", "a")));
        assert!(!query.selects(&pod("n2", "a")) && !query.selects(&pod("n1", "b")));
        assert_eq!(read(Verb::Get, "/api/v1/nodes?fieldSelector=spec.nodeName=a").err(), Some(400));
        assert_eq!(read(Verb::Get, "/api/v1/nodes?fieldSelector=metadata.name%3").err(), Some(400));
    }
}
