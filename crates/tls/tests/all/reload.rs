//! Certificates that are read again when their files change.

use std::fs;
use std::sync::Arc;

use weir_tls::{Refresh, Reloaded, Tls, TlsFiles};

use crate::certificates::Authority;

fn reloaded(files: &TlsFiles) -> Reloaded<Tls> {
    Reloaded::new(files, |files| Tls::read(files, b"test")).unwrap()
}

/// Replaces files by others.
fn install(files: &TlsFiles, new: &TlsFiles) {
    let pairs =
        [(&new.certificate, &files.certificate), (&new.key, &files.key), (&new.clients, &files.clients)];
    for (from, to) in pairs {
        fs::copy(from, to).unwrap();
    }
}

#[test]
fn changed_files_are_used_and_unusable_ones_keep_the_former() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let authority = Authority::new("own");
    let files = authority.write_files(folder.path(), "weir://relay/west");
    let certificate = reloaded(&files);
    let first = certificate.current();
    assert_eq!(certificate.refresh(), Refresh::Unchanged);
    assert!(Arc::ptr_eq(&first, &certificate.current()));

    let new = authority.write_files(other.path(), "weir://relay/east");
    // The certificate arrives before its key.
    fs::copy(&new.certificate, &files.certificate).unwrap();
    let Refresh::Failed(reason) = certificate.refresh() else { panic!("another key") };
    assert!(reason.starts_with(&format!("{} with key", files.certificate.display())), "{reason}");
    // The same reason is not logged again.
    assert_eq!(certificate.refresh(), Refresh::Unchanged);
    assert_eq!(certificate.current().name(), "weir://relay/west");
    fs::copy(&new.key, &files.key).unwrap();
    assert_eq!(certificate.refresh(), Refresh::Reloaded);
    assert_eq!(certificate.current().name(), "weir://relay/east");

    let expired = authority.write_expired_files(other.path(), "weir://relay/old");
    install(&files, &expired);
    let Refresh::Failed(reason) = certificate.refresh() else { panic!("an expired certificate") };
    assert!(reason.contains("has expired"), "{reason}");
    fs::remove_file(&files.key).unwrap();
    assert!(matches!(certificate.refresh(), Refresh::Failed(_)));
    assert_eq!(certificate.current().name(), "weir://relay/east");
    let status = certificate.status();
    assert_eq!((status.reloads, status.failed_reloads), (1, 4));
    assert!(status.seconds_left() > 86_400.0 * 365.0);
    assert_eq!(certificate.problem(), None);

    // The files of the certificate in use are back.
    install(&files, &new);
    assert_eq!(certificate.refresh(), Refresh::Unchanged);
    assert_eq!(certificate.status(), status);
}

#[test]
fn expired_certificate_is_a_problem_until_a_new_one_is_installed() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let authority = Authority::new("own");
    let files = authority.write_expired_files(folder.path(), "weir://agent/node-1");
    let certificate = reloaded(&files);
    assert!(certificate.problem().unwrap().contains("has expired"));
    assert!(certificate.status().seconds_left() < 0.0);
    install(&files, &authority.write_files(other.path(), "weir://agent/node-1"));
    assert_eq!(certificate.refresh(), Refresh::Reloaded);
    assert_eq!(certificate.problem(), None);
}
