//! stub
use std::ops::Range;
pub struct Domains{ start:u64,end:u64,each:u64,buffer:u64,n:u64 }
impl Domains {
    pub fn new(r: Range<u64>, n: usize, align: u64, buffer: u64) -> Domains {
        let s = r.start / align * align;
        let each = (r.end - s).div_ceil(n as u64).next_multiple_of(align);
        Domains{start:s,end:r.end,each,buffer,n:n as u64}
    }
    pub fn rounds(&self) -> u64 { self.each.min(self.end-self.start).div_ceil(self.buffer) }
    pub fn window(&self, a: usize, round: u64) -> Range<u64> {
        assert!((a as u64) < self.n);
        let b = self.start + a as u64*self.each; let e=(b+self.each).min(self.end);
        let s=(b+round*self.buffer).min(e); s..(s+self.buffer).min(e)
    }
}
