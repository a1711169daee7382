"""Tests of the suites that a device of Debian's kernel cannot pass although it claims to have what
they use, and why. What a device lacks is not here: the suites ask it, and skip."""

_TWO_WINDOWS = "rxe lets a peer access more of the region than the window covers"
_WRONG_LKEY = "rxe gives LOC_QP_OP_ERR for a wrong lkey"
_NO_LAST_EVENT = ("it raises no event for a queue pair of a shared receive queue that fails "
                  "before it is connected")
_UNBOUND_WINDOW = ("rxe's kernel module follows a null pointer to invalidate a window that is not "
                   "bound")
_UNSIGNALED_INVALIDATE = "librxe does not set IBV_WC_WITH_INV"
# SIW_INVAL_UOBJ_KEY of <rdma/siw-abi.h>, which is an ordinary offset of mmap(2) for the kernel.
_FEW_QUEUES = ("libsiw takes the offset 0x90000 of a queue's memory for an error, so that a "
               "process has 576 KiB of queues")

DEVIATIONS = {
    ("rxe", "conformance_test"): {
        "Batches.CarryEveryOperationInOrder": "rxe fails a list of work requests of a batch",
        "Batches.TakeInlineDataAtOnce": "rxe fails inline data of a batch",
        "Batches.WriteEightBytesAtOnceWithTheRightToWrite":
            "rxe accepts IBV_QP_EX_WITH_ATOMIC_WRITE, and has no such operation",
        "Batches.DoNotWriteAtOnceAcrossWords": "the same",
        "Batches.LargerThanTheQueueAreRefusedWhole": "rxe returns ENOSPC in place of ENOMEM",
        "Memory.MayBeginAtZero": "rxe ignores IBV_ACCESS_ZERO_BASED",
        "Queues.OnlyPollingMakesRoom": "rxe makes room in its queue before the program polls",
        "Queues.ComeBackFromErrorByReset": "rxe does not flush what is posted in the error state",
        "Queues.OfUnreliableConnectionsAnswerNothing": "rxe accepts an RDMA Read on UC",
        "Windows.OfTypeOneGrantAPartOfARegion": _TWO_WINDOWS,
        "Windows.OfTypeOneAreNotInvalidatedByAPeer":
            "rxe reports success of a Send whose invalidation it has refused",
        "Windows.OfTypeOneAreUnboundByABindOfNoLength": "rxe returns EINVAL in place of EBUSY",
        "Windows.OfTypeTwoAreInvalidatedByThePeer": _UNSIGNALED_INVALIDATE,
        "Windows.OfTypeTwoAreInvalidatedOnce": _UNBOUND_WINDOW,
        "Windows.OfTypeTwoAreNotInvalidatedBeforeTheyAreBound": _UNBOUND_WINDOW,
        "Windows.OfTypeTwoAreNotInvalidatedThroughAnotherQueuePair":
            "rxe invalidates a window through any queue pair",
    },
    ("rxe", "verbs_test"): {
        "EmptyHandle.AsyncEvents": _NO_LAST_EVENT,
        "AnyOrder.OneOfEachInUse":
            "rxe never ends ibv_destroy_qp while a window is bound on the queue pair",
        "AnyWindow.OpensAPartOfARegion/*": _TWO_WINDOWS,
        "AnyWindow.LosesItsOldKeyWhenItIsBoundAgain/OfType2": "rxe fails a second bind of a window",
        "Window.OfTypeTwoIsInvalidatedByThePeer": _UNSIGNALED_INVALIDATE,
        "ExtendedCompletion.extended_wc_fields": "rxe sets IBV_WC_GRH for connected queue pairs",
        "ExtendedCompletion.FailuresSayWhy": _WRONG_LKEY,
        "SharedRegion.ASendReachesNoReceiveThatIsDeregistered": _WRONG_LKEY,
        "ToItself.AShortReceiveFailsBothEnds":
            "rxe gives LOC_QP_OP_ERR for a receive that is too short",
        "Transfer.AShortReceiveFailsBothSides": "the same",
    },
    ("rxe", "connection_test"): {
        "Connection.ASendInvalidatesAWindowOfThePeer": _UNSIGNALED_INVALIDATE,
    },
    ("siw", "verbs_test"): {
        "EmptyHandle.AsyncEvents": _NO_LAST_EVENT,
        "SharedRegion.ReceivesGetExactlyTheBytesOfASend":
            "siw's kernel module follows a null pointer when the first piece of a Send is empty",
        "Transfer.send_flags": "siw raises no event for a solicited Send",
    },
    ("siw", "message_test"): {
        "Connecting.SixtyFourClientsOnOneListener": _FEW_QUEUES,
        "Coroutines.ManyAtOnceOnOneThread": _FEW_QUEUES,
    },
}
