//! Certificates that are read again when their files change.

use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::{TlsError, TlsFiles, check_validity, own_expiry};

/// The time between two looks at the files.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The contents of the certificate, the key and the authorities; none for a file that cannot be read.
type Contents = [Option<Vec<u8>>; 3];

/// Makes a value from certificate files.
type Make<T> = Box<dyn Fn(&TlsFiles) -> Result<T, String> + Send + Sync>;

/// A value made from certificate files, such as a configuration of TLS. If the files become unusable, the last value stays.
pub struct Reloaded<T> {
    files: TlsFiles,
    make: Make<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// The contents of the files that made the current value.
    contents: Contents,
    current: Arc<T>,
    status: CertificateStatus,
    /// Why the files on the disk cannot be used; none if they can.
    failure: Option<String>,
}

/// The state of an own certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateStatus {
    /// The first time after the validity of the certificate.
    pub expiry: SystemTime,
    /// How often changed files were read.
    pub reloads: u64,
    /// How often changed files could not be used.
    pub failed_reloads: u64,
}

impl CertificateStatus {
    /// The seconds until the certificate expires; negative once it has.
    pub fn seconds_left(&self) -> f64 {
        seconds_until(self.expiry)
    }
}

/// The seconds until a time; negative once it has passed.
pub fn seconds_until(time: SystemTime) -> f64 {
    match time.duration_since(SystemTime::now()) {
        Ok(left) => left.as_secs_f64(),
        Err(past) => -past.duration().as_secs_f64(),
    }
}

/// The result of a look at the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refresh {
    /// Nothing to log: the files have not changed, or are unusable for the same reason as before.
    Unchanged,
    /// The files have changed, and the new ones are in use.
    Reloaded,
    /// The files have changed and cannot be used for this reason. The former ones stay in use.
    Failed(String),
}

impl<T> Reloaded<T> {
    /// Makes the first value. The certificate may have expired already.
    ///
    /// # Errors
    /// The files cannot be used.
    pub fn new<E: Display + From<TlsError>>(
        files: &TlsFiles,
        make: impl Fn(&TlsFiles) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Reloaded<T>, E> {
        // Read first: if the files change meanwhile, the next look finds a difference.
        let contents = read(files);
        let current = Arc::new(make(files)?);
        let status = CertificateStatus { expiry: own_expiry(files)?, reloads: 0, failed_reloads: 0 };
        Ok(Reloaded {
            files: files.clone(),
            make: Box::new(move |files| make(files).map_err(|error| error.to_string())),
            state: Mutex::new(State { contents, current, status, failure: None }),
        })
    }

    /// The value of the last usable files.
    pub fn current(&self) -> Arc<T> {
        Arc::clone(&self.lock().current)
    }

    /// The state of the certificate in use.
    pub fn status(&self) -> CertificateStatus {
        self.lock().status
    }

    /// Why the certificate in use is not valid now; none if it is. Reads files, so it can block.
    pub fn problem(&self) -> Option<String> {
        let (status, is_on_disk) = {
            let state = self.lock();
            (state.status, state.failure.is_none())
        };
        let error = if status.seconds_left() <= 0.0 {
            let certificate = self.files.certificate.clone();
            Some(TlsError::NotValidNow { certificate, problem: "has expired" })
        } else if is_on_disk {
            check_validity(&self.files).err()
        } else {
            None
        };
        error.map(|error| error.to_string())
    }

    /// Makes a new value if the files have changed. Reads files, so it can block.
    pub fn refresh(&self) -> Refresh {
        let contents = read(&self.files);
        {
            let mut state = self.lock();
            if contents == state.contents {
                state.failure = None;
                return Refresh::Unchanged;
            }
        }
        let made = check_validity(&self.files).map_err(|error| error.to_string()).and_then(|()| {
            let value = (self.make)(&self.files)?;
            Ok((value, own_expiry(&self.files).map_err(|error| error.to_string())?))
        });
        let mut state = self.lock();
        match made {
            Ok((value, expiry)) => {
                state.contents = contents;
                state.current = Arc::new(value);
                state.status.expiry = expiry;
                state.status.reloads += 1;
                state.failure = None;
                Refresh::Reloaded
            }
            Err(reason) => {
                state.status.failed_reloads += 1;
                if state.failure.as_ref() == Some(&reason) {
                    return Refresh::Unchanged;
                }
                state.failure = Some(reason.clone());
                Refresh::Failed(reason)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(files: &TlsFiles) -> Contents {
    let read = |path: &Path| {
        let is_small = fs::metadata(path).ok()?.len() <= MAX_FILE_BYTES;
        is_small.then(|| fs::read(path).ok()).flatten()
    };
    [&files.certificate, &files.key, &files.clients].map(|path| read(path))
}
