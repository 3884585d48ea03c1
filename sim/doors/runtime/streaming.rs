//! Exec, attach and port-forward: where they are served; and commands whose output is wanted at once.

use super::Runtime;
use super::answers::{UNKNOWN, error, not_found};
use steplet_api::cri;
use steplet_core::event::RpcError;

/// Where the streaming server listens.
const SERVER: &str = "http://127.0.0.1:10010";

impl Runtime {
    /// The URL of a stream for a container.
    pub(super) fn stream(&self, kind: &str, id: &str) -> Result<String, RpcError> {
        self.runs(id)?;
        Ok(format!("{SERVER}/{kind}/{id}"))
    }

    pub(super) fn port_forward(&self, id: &str) -> Result<cri::PortForwardResponse, RpcError> {
        let sandbox = self.sandbox(id).ok_or_else(|| not_found("sandbox", id))?;
        if !sandbox.ready {
            return Err(error(UNKNOWN, format!("sandbox container {id:?} is not running")));
        }
        Ok(cri::PortForwardResponse { url: format!("{SERVER}/portforward/{id}") })
    }

    /// What the simulated programs can do: `echo WORDS` and `exit CODE`.
    pub(super) fn exec_sync(
        &self,
        request: &cri::ExecSyncRequest,
    ) -> Result<cri::ExecSyncResponse, RpcError> {
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
