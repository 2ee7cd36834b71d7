//! Views: what of a file a process sees (MPI 5.0 §14.3).

use super::representation::Representation;
use super::{File, agree};
use crate::{Datatype, Info, Result, err};
use ferry_datatype::Basic;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// A view.
#[derive(Clone)]
pub(super) struct FileView {
    /// The byte of the file where it begins.
    pub displacement: u64,
    etype: Arc<Datatype>,
    filetype: Arc<Datatype>,
    /// The filetype with the sizes that it has in the file.
    pub stored_filetype: Arc<Datatype>,
    pub representation: Representation,
    pub layout: ferry_io::View,
    /// Bytes of an etype in the file.
    pub etype_bytes: u64,
    /// Filetypes lie over each other, so that not more than one may be written.
    overlaps: bool,
    /// For accesses within the first filetype, if that has a better layout.
    first: Option<Arc<FileView>>,
    /// It is one for such accesses.
    is_first: bool,
}

/// A view as MPI_File_get_view returns it.
pub struct ViewDescription {
    /// The byte of the file where it begins.
    pub displacement: u64,
    /// Its etype.
    pub etype: Arc<Datatype>,
    /// Its filetype.
    pub filetype: Arc<Datatype>,
    /// Its data representation.
    pub datarep: String,
}

/// The arguments of MPI_File_set_view.
#[derive(Clone, Copy)]
pub struct ViewArguments<'a> {
    /// The byte of the file where it begins. `None`: where the shared file pointer is.
    pub displacement: Option<i64>,
    /// Its etype.
    pub etype: &'a Arc<Datatype>,
    /// Its filetype.
    pub filetype: &'a Arc<Datatype>,
    /// Its data representation.
    pub datarep: &'a str,
    /// Hints.
    pub info: Option<&'a Info>,
}

impl FileView {
    /// The view of a file that has just been opened: all bytes.
    pub fn bytes() -> FileView {
        let byte = Datatype::basic(Basic::Byte);
        FileView {
            displacement: 0,
            etype: byte.clone(),
            filetype: byte.clone(),
            stored_filetype: byte.clone(),
            representation: Representation::Native("native"),
            layout: ferry_io::View::bytes(),
            etype_bytes: 1,
            overlaps: false,
            first: None,
            is_first: false,
        }
    }

    fn new(
        displacement: u64,
        etype: &Arc<Datatype>,
        filetype: &Arc<Datatype>,
        datarep: &str,
        writes: bool,
    ) -> Result<FileView> {
        let Some(representation) = Representation::named(datarep) else {
            return Err(err!(
                UnsupportedDatarep,
                "datarep is {datarep:?}, which is none of \"native\", \"internal\" and \
                 \"external32\", nor registered by MPI_Register_datarep"
            ));
        };
        let stored_etype = representation.in_file(etype)?;
        let stored_filetype = representation.in_file(filetype)?;
        let etype_bytes = stored_etype.size();
        if etype_bytes <= 0 {
            return Err(err!(Type, "etype has no bytes"));
        }
        let etype_bytes = etype_bytes as u64;
        let layout = ferry_io::View::new(displacement, etype_bytes, &stored_filetype)
            .map_err(|e| err!(Io, "{e}"))?;
        if writes && layout.overlaps_within_filetype() {
            return Err(err!(
                Io,
                "the filetype has bytes twice, which a file that is open for writing must not have"
            ));
        }
        let mut view = FileView {
            displacement,
            etype: etype.copy(),
            filetype: filetype.copy(),
            stored_filetype,
            representation,
            overlaps: writes && layout.overlaps(),
            layout,
            etype_bytes,
            first: None,
            is_first: false,
        };
        if let Some(layout) = view.layout.first_filetype() {
            view.first = Some(Arc::new(FileView {
                layout,
                overlaps: false,
                is_first: true,
                ..view.clone()
            }));
        }
        Ok(view)
    }

    /// The view for an access to these bytes of its data.
    ///
    /// Errors: Io for a write of more than one filetype that lie over each other.
    pub fn for_access(self: Arc<FileView>, data: Range<u64>, write: bool) -> Result<Arc<FileView>> {
        let within = data.end <= self.layout.filetype_bytes();
        match &self.first {
            Some(first) if within => Ok(first.clone()),
            _ if write && self.overlaps && !within => Err(err!(
                Io,
                "the filetype's extent is less than it spans, and filetypes that follow each other \
                 have bytes in common, which must not be written"
            )),
            _ => Ok(self),
        }
    }

    /// Do two phases use its first filetype only?
    pub fn is_first_only(&self) -> bool {
        self.is_first || self.first.is_some()
    }

    /// Its displacement plus 1, if it is a contiguous view of bytes as they are in memory; else 0.
    fn plain(&self) -> u64 {
        let bytes = self.etype_bytes == 1 && self.representation.is_native();
        match bytes && self.layout.is_contiguous() {
            true => self.layout.offset_of(0) + 1,
            false => 0,
        }
    }

    /// Etypes in these bytes of the view's data.
    pub fn etypes(&self, bytes: u64) -> u64 {
        bytes / self.etype_bytes
    }

    /// Bytes of the view's data before this etype.
    ///
    /// Errors: Arg: beyond what 63 bits hold.
    pub fn bytes_of(&self, etypes: u64) -> Result<u64> {
        let bytes = etypes.checked_mul(self.etype_bytes);
        bytes.filter(|b| *b <= i64::MAX as u64).ok_or_else(|| {
            err!(
                Arg,
                "offset is {etypes} etypes of {} bytes, which is beyond any file",
                self.etype_bytes
            )
        })
    }
}

impl File {
    /// Sets the view; the file pointers go to its beginning (MPI_File_set_view). Collective; blocks
    /// until all ranks have called it.
    ///
    /// Errors, on all ranks: that of `arguments`; Arg, Type, UnsupportedDatarep; NotSame if etypes
    /// differ in size.
    pub fn set_view(&self, arguments: Result<ViewArguments<'_>>) -> Result<()> {
        let mut hints = self.hints().clone();
        let mine = arguments.and_then(|a| {
            let view = self.new_view(a.displacement, a.etype, a.filetype, a.datarep)?;
            hints.set(a.info)?;
            self.check_no_split("MPI_File_set_view")?;
            Ok(view)
        });
        let bytes = mine.as_ref().map_or(0, |view| view.etype_bytes);
        let difference = || format!("etype has {bytes} bytes in the file, but not on all ranks");
        let reset = || self.shared.store(0);
        let view = agree::on_same_values_then(&self.comm, mine, [bytes], difference, reset)?;
        self.plain_view.store(view.plain(), Ordering::Relaxed);
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
        *self.position.lock().unwrap_or_else(PoisonError::into_inner) = 0;
        self.set_hints(hints);
        self.forget_rank_views();
        Ok(())
    }

    fn new_view(
        &self,
        displacement: Option<i64>,
        etype: &Arc<Datatype>,
        filetype: &Arc<Datatype>,
        datarep: &str,
    ) -> Result<FileView> {
        let displacement = match displacement {
            Some(bytes) if bytes < 0 => {
                return Err(err!(Arg, "disp is {bytes}, which is negative"));
            }
            Some(_) if self.mode.sequential => {
                return Err(err!(
                    Arg,
                    "disp has to be MPI_DISPLACEMENT_CURRENT in a file that is open with \
                     MPI_MODE_SEQUENTIAL"
                ));
            }
            Some(bytes) => bytes as u64,
            None if !self.mode.sequential => {
                return Err(err!(
                    Arg,
                    "disp is MPI_DISPLACEMENT_CURRENT, which is for files that are open with \
                     MPI_MODE_SEQUENTIAL"
                ));
            }
            None => {
                let view = self.view();
                view.layout.offset_of(view.bytes_of(self.shared.load()?)?)
            }
        };
        FileView::new(displacement, etype, filetype, datarep, self.mode.write)
    }

    /// The view (MPI_File_get_view).
    pub fn describe_view(&self) -> ViewDescription {
        let view = self.view();
        ViewDescription {
            displacement: view.displacement,
            etype: view.etype.copy(),
            filetype: view.filetype.copy(),
            datarep: view.representation.name().to_owned(),
        }
    }

    /// The extent of a type in the file (MPI_File_get_type_extent), bytes.
    ///
    /// Errors: those of the program's functions.
    pub fn type_extent(&self, datatype: &Arc<Datatype>) -> Result<i64> {
        Ok(self.view().representation.in_file(datatype)?.extent())
    }
}
