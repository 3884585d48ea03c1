//! Exec, attach and port-forward: where they are served; and commands whose output is wanted at once.

use super::answers::{UNKNOWN, answer, error, not_found, read, unimplemented};
use super::{Answer, Flavour, Runtime};
use steplet_api::cri;
use steplet_core::event::RpcError;

/// Where the streaming server listens.
const SERVER: &str = "http://127.0.0.1:10010";

#[derive(Debug)]
pub enum Work {
    Exec(String),
    Attach(String),
    PortForward(String),
    ExecSync(cri::ExecSyncRequest),
    Checkpoint(String),
}

pub fn decode(method: &str, body: &[u8]) -> Result<super::Work, RpcError> {
    Ok(super::Work::Streaming(match method {
        "Exec" => Work::Exec(read::<cri::ExecRequest>(body)?.container_id),
        "Attach" => Work::Attach(read::<cri::AttachRequest>(body)?.container_id),
        "PortForward" => Work::PortForward(read::<cri::PortForwardRequest>(body)?.pod_sandbox_id),
        "ExecSync" => Work::ExecSync(read(body)?),
        "CheckpointContainer" => {
            Work::Checkpoint(read::<cri::CheckpointContainerRequest>(body)?.container_id)
        }
        _ => return Err(unimplemented(method)),
    }))
}

impl Runtime {
    pub(super) fn serve(&self, work: &Work) -> Answer {
        match work {
            Work::Exec(id) => {
                self.stream("exec", id).and_then(|url| answer(cri::ExecResponse { url }))
            }
            Work::Attach(id) => {
                self.stream("attach", id).and_then(|url| answer(cri::AttachResponse { url }))
            }
            Work::PortForward(id) => self.port_forward(id).and_then(answer),
            Work::ExecSync(request) => self.exec_sync(request).and_then(answer),
            Work::Checkpoint(_) if self.flavour == Flavour::Old => {
                Err(unimplemented("CheckpointContainer"))
            }
            Work::Checkpoint(id) => self.runs(id).and_then(|()| answer(())),
        }
    }

    /// The URL of a stream for a container.
    fn stream(&self, kind: &str, id: &str) -> Result<String, RpcError> {
        self.runs(id)?;
        Ok(format!("{SERVER}/{kind}/{id}"))
    }

    fn port_forward(&self, id: &str) -> Result<cri::PortForwardResponse, RpcError> {
        let sandbox = self.sandbox(id).ok_or_else(|| not_found("sandbox", id))?;
        if !sandbox.ready {
            return Err(error(UNKNOWN, format!("sandbox container {id:?} is not running")));
        }
        Ok(cri::PortForwardResponse { url: format!("{SERVER}/portforward/{id}") })
    }

    /// What the simulated programs can do: `echo WORDS` and `exit CODE`.
    fn exec_sync(&self, request: &cri::ExecSyncRequest) -> Result<cri::ExecSyncResponse, RpcError> {
        self.runs(&request.container_id)?;
        let mut output = cri::ExecSyncResponse::default();
        let words: Vec<&str> = request.cmd.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["echo", words @ ..] => output.stdout = format!("{}\n", words.join(" ")).into_bytes(),
            ["exit", code] => output.exit_code = code.parse().unwrap_or(2),
            _ => {
                let what = words.first().unwrap_or(&"");
                let why = format!(
                    "failed to exec in container: exec: {what:?}: executable file not found in $PATH"
                );
                return Err(error(UNKNOWN, why));
            }
        }
        Ok(output)
    }

    fn runs(&self, id: &str) -> Result<(), RpcError> {
        let container = self.container(id).ok_or_else(|| not_found("container", id))?;
        match container.running() {
            true => Ok(()),
            false => Err(error(UNKNOWN, format!("container is in {:?} state", container.state))),
        }
    }
}
