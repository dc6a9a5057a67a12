//! The time at which certificates stop being valid.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage};

/// An error for the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a certificate of the connection has expired")]
pub struct ConnectionExpired;

/// The first time at which a connection is no longer authenticated by this verified chain of certificates, that of one end first.
///
/// Intermediate certificates that have already expired were not needed to verify the chain, so they do not count.
pub fn chain_expiry(chain: &[CertificateDer<'_>]) -> SystemTime {
    let now = SystemTime::now();
    let Some((end, intermediates)) = chain.split_first() else { return UNIX_EPOCH };
    let end = certificate_expiry(end).unwrap_or(UNIX_EPOCH);
    let intermediates = intermediates.iter().filter_map(certificate_expiry).filter(|&expiry| expiry > now);
    intermediates.fold(end, SystemTime::min)
}

/// The first time after the validity of a certificate; none if the certificate is malformed.
fn certificate_expiry(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    // No certificate is valid at this time, and the error names the last second of its validity.
    let end_of_time = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    match check_period(certificate, end_of_time).err()? {
        Error::CertExpired { not_after, .. } => {
            UNIX_EPOCH.checked_add(Duration::from_secs(not_after.as_secs().saturating_add(1)))
        }
        _ => None,
    }
}

/// Checks that a time is inside the validity of a certificate. The authority that signed it does not matter.
///
/// # Errors
/// The certificate has expired, is not valid yet, or is malformed.
pub fn check_period(certificate: &CertificateDer<'_>, time: UnixTime) -> Result<(), Error> {
    let certificate = EndEntityCert::try_from(certificate)?;
    let verified = certificate.verify_for_usage(&[], &[], &[], time, KeyUsage::client_auth(), None, None);
    match verified.err() {
        Some(error @ (Error::CertExpired { .. } | Error::CertNotValidYet { .. })) => Err(error),
        // Without authorities no certificate is verified. The period is checked before.
        _ => Ok(()),
    }
}
