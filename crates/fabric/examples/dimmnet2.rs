//! Prints what the parts of a message take on a DIMMnet-2 machine, in microseconds: `part,us` lines. Argument: the machine, `dimmnet2` if none.

use ferry_fabric::dimmnet2::measure::parts;
use ferry_fabric::machine;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1);
    let (file, text) = machine::find(name.as_deref().unwrap_or("dimmnet2"))?;
    let parts = parts(&machine::read(&file, &text)?).ok_or("the machine's card is no DIMMnet-2")?;
    println!("BOTF(IVS) 32 bytes,{:.6}", parts.botf.micros());
    println!("VL 128 bytes,{:.6}", parts.load.micros());
    println!("library-level eager,{:.6}", parts.driver.micros());
    Ok(())
}
