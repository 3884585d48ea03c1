//! systemd over D-Bus: slices are made, changed and stopped by its jobs. In a helper process only, since it blocks.
//!
//! Upstream: cgroups/systemd in opencontainers/cgroups; org.freedesktop.systemd1(5).

use super::properties::{self, Property, Value};
use nix::unistd::alarm;
use rustbus::connection::{Error, Timeout, get_system_bus_path, ll_conn::DuplexConn};
use rustbus::message_builder::{MarshalledMessage, MessageBuilder};
use rustbus::{MessageType, standard_messages};
use std::time::{Duration, Instant};
use steplet_core::effect::Cgroup;
use steplet_core::event::{Fault, FaultKind};

/// Until systemd has done what it was asked for, all in all.
const WITHIN: Duration = Duration::from_secs(25);
/// Beyond it the process is ended: a bus that closes or stalls in the handshake holds up the client for ever.
const ALARM_SECS: u32 = 30;
const JOB_ENDED: &str = "type='signal',sender='org.freedesktop.systemd1',\
     interface='org.freedesktop.systemd1.Manager',member='JobRemoved'";

mod variant {
    // The macro makes more than is used here.
    #![allow(dead_code)]
    rustbus::dbus_variant_sig!(Variant, Flag => bool; Number => u64; Text => String);
}
use variant::Variant;

/// Makes slices that are not there, parents first, and sets the values of all.
pub fn set(slices: &[&Cgroup], v2: bool) -> Result<(), Fault> {
    if slices.is_empty() {
        return Ok(());
    }
    in_time(|bus| {
        for slice in slices {
            let mut asked = properties::of_new(name(&slice.path), v2);
            let values = properties::of_values(slice)?;
            asked.extend(values.iter().cloned());
            bus.make(name(&slice.path), asked, values)
                .map_err(|error| error.fault("make", name(&slice.path)))?;
        }
        Ok(())
    })
}

/// Stops a slice and forgets it; gone already is fine.
pub fn stop(path: &str) -> Result<(), Fault> {
    in_time(|bus| {
        bus.stop(name(path)).map_err(|error| error.fault("stop", name(path)))?;
        // Only one that failed is there to be forgotten.
        let mut forget = manager("ResetFailedUnit");
        let _ = push(&mut forget, name(path)).and_then(|()| bus.call(&forget));
        Ok(())
    })
}

fn in_time(work: impl FnOnce(&mut Bus) -> Result<(), Fault>) -> Result<(), Fault> {
    alarm::set(ALARM_SECS);
    let done = Bus::connect().map_err(|error| Fault {
        kind: FaultKind::Other,
        message: format!("systemd cannot be asked over D-Bus: {}", error.text()),
    });
    let done = done.and_then(|mut bus| work(&mut bus));
    alarm::cancel();
    done
}

/// The unit of a cgroup.
fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[derive(Debug)]
enum Failure {
    Bus(Error),
    /// An answer: the error's name and its text.
    Refused(String, String),
    /// A job ended so.
    Job(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Bus(error)
    }
}

impl Failure {
    fn is(&self, error: &str) -> bool {
        let Failure::Refused(name, _) = self else { return false };
        name.strip_prefix("org.freedesktop.systemd1.") == Some(error)
    }

    fn text(&self) -> String {
        match self {
            Failure::Bus(Error::TimedOut) => format!("no answer in {} s", WITHIN.as_secs()),
            Failure::Bus(Error::ConnectionClosed) => "the bus closed the connection".into(),
            Failure::Bus(Error::IoError(error)) => error.to_string(),
            Failure::Bus(Error::NixError(errno)) => errno.desc().to_owned(),
            Failure::Bus(error) => error.to_string(),
            Failure::Refused(_, text) => text.clone(),
            Failure::Job(result) => format!("its job ended as {result:?}"),
        }
    }

    fn fault(&self, verb: &str, unit: &str) -> Fault {
        let kind = match self {
            Failure::Bus(Error::TimedOut) => FaultKind::TimedOut,
            _ => FaultKind::Other,
        };
        Fault { kind, message: format!("systemd did not {verb} {unit}: {}", self.text()) }
    }
}

/// A connection to the system bus.
struct Bus {
    conn: DuplexConn,
    until: Instant,
    /// Jobs that ended before anybody waited for them: path and result.
    ended: Vec<(String, String)>,
}

impl Bus {
    fn connect() -> Result<Bus, Failure> {
        let conn = DuplexConn::connect_to_bus(get_system_bus_path()?, false)?;
        let mut bus = Bus { conn, until: Instant::now() + WITHIN, ended: Vec::new() };
        bus.call(&standard_messages::hello())?;
        bus.call(&standard_messages::add_match(JOB_ENDED))?;
        // Without subscribers systemd tells of no job.
        bus.call(&manager("Subscribe"))?;
        Ok(bus)
    }

    fn make(
        &mut self,
        unit: &str,
        asked: Vec<Property>,
        values: Vec<Property>,
    ) -> Result<(), Failure> {
        let mut start = manager("StartTransientUnit");
        push(&mut start, unit)?;
        push(&mut start, "replace")?;
        push(&mut start, variants(asked))?;
        // Units beside it: none.
        push(&mut start, Vec::<(String, Vec<(String, Variant)>)>::new())?;
        match self.job(&start) {
            Err(error) if error.is("UnitExists") => {}
            other => return other,
        }
        let mut change = manager("SetUnitProperties");
        push(&mut change, unit)?;
        // For this boot only.
        push(&mut change, true)?;
        push(&mut change, variants(values))?;
        self.call(&change)?;
        // It may be known and not run: somebody has stopped it.
        let mut start = manager("StartUnit");
        push(&mut start, unit)?;
        push(&mut start, "replace")?;
        self.job(&start)
    }

    fn stop(&mut self, unit: &str) -> Result<(), Failure> {
        let mut stop = manager("StopUnit");
        push(&mut stop, unit)?;
        push(&mut stop, "replace")?;
        match self.job(&stop) {
            Err(error) if error.is("NoSuchUnit") => Ok(()),
            other => other,
        }
    }

    /// A call that begins a job, and the end of the job.
    fn job(&mut self, call: &MarshalledMessage) -> Result<(), Failure> {
        let answer = self.call(call)?;
        let path: rustbus::wire::ObjectPath<String> =
            answer.body.parser().get().map_err(Error::from)?;
        loop {
            if let Some(at) = self.ended.iter().position(|(job, _)| job == path.as_ref()) {
                let (_, result) = self.ended.swap_remove(at);
                return if result == "done" { Ok(()) } else { Err(Failure::Job(result)) };
            }
            let message = self.next()?;
            self.hear(message)?;
        }
    }

    fn call(&mut self, call: &MarshalledMessage) -> Result<MarshalledMessage, Failure> {
        let serial = self.conn.send.send_message_write_all(call)?;
        loop {
            let message = self.next()?;
            if message.dynheader.response_serial != Some(serial) {
                self.hear(message)?;
                continue;
            }
            if message.typ != MessageType::Error {
                return Ok(message);
            }
            let text: Result<String, _> = message.body.parser().get();
            let name = message.dynheader.error_name.unwrap_or_default();
            return Err(Failure::Refused(name.clone(), text.unwrap_or(name)));
        }
    }

    fn next(&mut self) -> Result<MarshalledMessage, Failure> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::TimedOut.into());
        }
        Ok(self.conn.recv.get_next_message(Timeout::Duration(left))?)
    }

    /// Keeps what a signal says of the end of a job; others are nothing to us.
    fn hear(&mut self, message: MarshalledMessage) -> Result<(), Failure> {
        if message.typ == MessageType::Signal
            && message.dynheader.member.as_deref() == Some("JobRemoved")
        {
            let (_, job, _, result): (u32, rustbus::wire::ObjectPath<String>, String, String) =
                message.body.parser().get4().map_err(Error::from)?;
            self.ended.push((job.as_ref().to_owned(), result));
        }
        Ok(())
    }
}

fn manager(method: &str) -> MarshalledMessage {
    MessageBuilder::new()
        .call(method)
        .with_interface("org.freedesktop.systemd1.Manager")
        .on("/org/freedesktop/systemd1")
        .at("org.freedesktop.systemd1")
        .build()
}

fn push(message: &mut MarshalledMessage, what: impl rustbus::Marshal) -> Result<(), Failure> {
    Ok(message.body.push_param(what).map_err(Error::from)?)
}

fn variants(properties: Vec<Property>) -> Vec<(String, Variant)> {
    let one = |(name, value): Property| {
        let value = match value {
            Value::Flag(flag) => Variant::Flag(flag),
            Value::Number(number) => Variant::Number(number),
            Value::Text(text) => Variant::Text(text),
        };
        (name.to_owned(), value)
    };
    properties.into_iter().map(one).collect()
}
