"""What programs use of multiprocessing."""
import multiprocessing, sys
from multiprocessing import shared_memory

def add(value, lock, times):
    for _ in range(times):
        with lock:
            value.value += 1

def square(number):
    return number * number

def produce(queue, times):
    for number in range(times):
        queue.put(number)
    queue.put(None)

def fill(name):
    block = shared_memory.SharedMemory(name=name)
    block.buf[0] = 42
    block.close()

def answer(event, queue):
    event.wait()
    queue.put("heard")

def main():
    make = multiprocessing.get_context(sys.argv[1])
    lock, value, queue = make.Lock(), make.Value("i", 0), make.Queue()
    children = [make.Process(target=add, args=(value, lock, 50)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    print("value", value.value, [child.exitcode for child in children])
    child = make.Process(target=produce, args=(queue, 30))
    child.start()
    print("queue", sum(iter(queue.get, None)))
    child.join()
    with make.Pool(2) as pool:
        print("pool", pool.map(square, range(10)))
    event = make.Event()
    child = make.Process(target=answer, args=(event, queue))
    child.start()
    event.set()
    print("event", queue.get())
    child.join()
    block = shared_memory.SharedMemory(create=True, size=10000)
    child = make.Process(target=fill, args=(block.name,))
    child.start()
    child.join()
    print("memory", block.buf[0], child.exitcode)
    block.close()
    block.unlink()
    # It waits in calls: one that computes would keep its parent from ending it. The event is kept:
    # one that is dropped is unlinked, perhaps before the child has opened it.
    event = make.Event()
    child = make.Process(target=answer, args=(event, queue))
    child.start()
    child.terminate()
    child.join()
    print("terminated", child.exitcode)

if __name__ == "__main__":
    main()
