-- Grants a fair lock like ask.lua, unless Redisson's own fair lock of that name, with a queue of
-- another form, is in use.
--
-- queues    keys of Redisson's queue and of its time-outs
local function askfair(key, queue, first, second, counter, ...)
    for _, foreign in ipairs({first, second}) do
        if redis.call('exists', foreign) == 1 then
            return {-1, foreign, "queue of Redisson's fair lock"}
        end
    end
    return ask(key, queue, counter, ...)
end
