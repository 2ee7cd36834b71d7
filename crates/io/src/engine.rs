//! stub
use crate::{Result, StoredFile};
use std::sync::Arc;
#[derive(Default)]
pub struct Options;
pub struct Engine;
type End = Box<dyn FnOnce(Result<usize>)+Send>;
impl Engine {
    pub fn new(_: Options)->Engine{Engine}
    pub unsafe fn read(&self, f: Arc<dyn StoredFile>, at:*mut u8, len: usize, offset:u64, end: End) { let at=at.addr(); self.run(Box::new(move || { let b= unsafe{std::slice::from_raw_parts_mut(at as *mut u8,len)}; end(crate::transfer::read_exact_or_end(&*f,b,offset)) })) }
    pub unsafe fn write(&self, f: Arc<dyn StoredFile>, at:*mut u8, len: usize, offset:u64, end: End) { let at=at.addr(); self.run(Box::new(move || { let b= unsafe{std::slice::from_raw_parts(at as *const u8,len)}; end(crate::transfer::write_all(&*f,b,offset).map(|()|len)) })) }
    pub fn run(&self, f: Box<dyn FnOnce()+Send>) { std::thread::spawn(f); }
}
