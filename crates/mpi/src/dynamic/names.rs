//! Published names (MPI 5.0 §11.10.4). The launcher has them, or a name server. A process without
//! either has its own.

use crate::process::process;
use crate::{Result, err};
use ferry_job::{NameAnswer, NameRequest, NameStore};
use std::sync::{Mutex, PoisonError};

/// The names of a process without launcher and name server.
static OWN_NAMES: Mutex<Option<NameStore>> = Mutex::new(None);

fn ask(request: &NameRequest) -> Result<NameAnswer> {
    let answer = match process().client() {
        Some(client) => client.ask_name(request),
        None if std::env::var_os("FERRY_NAMES").is_some_and(|v| !v.is_empty()) => {
            ferry_job::ask_name_server(request)
        }
        None => {
            let mut own = OWN_NAMES.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(own.get_or_insert_default().ask(request))
        }
    };
    answer.map_err(|e| {
        err!(
            Service,
            "published names cannot be asked for: {e} (under another launcher, start a name server \
             with ferry names, and the program with Ferry's mpiexec)"
        )
    })
}

/// Publishes a name for a port (MPI_Publish_name).
///
/// Errors: Service if it is published already, or nobody keeps names.
pub fn publish(service: &str, port: &str) -> Result<()> {
    let request = NameRequest::Publish {
        service: service.into(),
        port: port.into(),
    };
    match ask(&request)? {
        Some(_) => Ok(()),
        None => Err(err!(
            Service,
            "the name {service:?} is published already: MPI_Unpublish_name frees it"
        )),
    }
}

/// Unpublishes a name (MPI_Unpublish_name).
///
/// Errors: Service if it is not published, or with another port.
pub fn unpublish(service: &str, port: &str) -> Result<()> {
    let request = NameRequest::Unpublish {
        service: service.into(),
        port: port.into(),
    };
    match ask(&request)? {
        Some(_) => Ok(()),
        None => Err(err!(
            Service,
            "the name {service:?} is not published with this port"
        )),
    }
}

/// The port of a published name (MPI_Lookup_name).
///
/// Errors: Name if it is not published; Service if nobody keeps names.
pub fn lookup(service: &str) -> Result<String> {
    let request = NameRequest::Lookup {
        service: service.into(),
    };
    ask(&request)?.ok_or_else(|| err!(Name, "the name {service:?} is not published"))
}
