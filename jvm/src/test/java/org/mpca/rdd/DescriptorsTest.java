package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

class DescriptorsTest {
    @Test
    void shouldWantTwoForEachExecutorOrThreeOnTheDriverAndItsOwn() {
        assertNull(Descriptors.lack(1024, false, Descriptors.OWN + 2048));
        String lack = Descriptors.lack(1024, false, 1024);
        assertTrue(lack.startsWith("too few open files for 1024 executors: limit=1024, needed=2528; "), lack);
        assertNull(Descriptors.lack(1024, true, Descriptors.OWN + 3072));
        lack = Descriptors.lack(1024, true, 1024);
        assertTrue(lack.startsWith("too few open files for 1024 executors: limit=1024, needed=3552; "), lack);
    }

    @Test
    void shouldRefuseOnlyWhatIsCertainToFail() {
        int least = Descriptors.LEAST_OWN + 4;
        Peer driver = new Peer("driver", "here", 1, least + 2);
        Peer fits = new Peer("0", "a", 1, least);
        Descriptors.refuse(
                Arrays.asList(fits, new Peer("1", "b", 1)), driver); // of who said nothing, nothing is certain
        List<Peer> one = Arrays.asList(fits, new Peer("1", "b", 1, least - 1));
        String said = assertThrows(IllegalStateException.class, () -> Descriptors.refuse(one, driver))
                .getMessage();
        assertTrue(
                said.startsWith("too few open files for 2 executors: executor 1 at b:1, limit=275, needed=276; raise "),
                said);
        Peer low = new Peer("driver", "here", 1, 100);
        said = assertThrows(IllegalStateException.class, () -> Descriptors.refuse(Arrays.asList(fits, fits), low))
                .getMessage();
        assertTrue(
                said.startsWith("too few open files for 2 executors: the driver at here, limit=100, needed=278; "),
                said);
    }

    @Test
    void shouldKnowItsOwnLimit() {
        assertTrue(Descriptors.limit() > 0);
    }
}
