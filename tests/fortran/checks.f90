! What the programs assert with.
module checks
  implicit none
contains
  ! Ends the job with a message unless the condition holds.
  subroutine check(ok, what)
    logical, intent(in) :: ok
    character(len=*), intent(in) :: what
    if (.not. ok) then
      print '(2a)', 'failed: ', what
      error stop 1
    end if
  end subroutine
end module
