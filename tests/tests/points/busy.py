"""Processes that wait for each other's shared values in loops."""
import multiprocessing

ROUNDS = 6

def answer(value):
    for round in range(ROUNDS):
        while value.value != 2 * round + 1:
            pass
        value.value += 1

if __name__ == "__main__":
    value = multiprocessing.Value("i", 0, lock=False)
    child = multiprocessing.Process(target=answer, args=(value,))
    child.start()
    for round in range(ROUNDS):
        value.value += 1
        while value.value != 2 * round + 2:
            pass
    child.join()
    print(value.value, child.exitcode)
